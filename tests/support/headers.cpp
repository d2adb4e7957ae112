// SPDX-License-Identifier: Apache-2.0
// The precompiled headers of the tests belong to a program, which needs a source.
