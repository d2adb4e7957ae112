// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An element of an XML document: its own text, entities resolved, and its children in order.
struct XmlElement {
  std::string name;
  std::string text;
  std::vector<XmlElement> children;

  /// The text of the first child of that name; empty if there is none.
  std::string text_of(std::string_view child) const;
};

/// Reads what S3 answers: elements, text, attributes (skipped) and a declaration. Throws Error for anything
/// else, document types and comments included, and for what does not nest.
XmlElement parse_xml(std::string_view document);

/// A text with the five characters that XML reserves as entities.
std::string escape_xml(std::string_view text);

}  // namespace lockstep
