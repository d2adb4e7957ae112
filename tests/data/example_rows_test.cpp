// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/example_rows.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/corpus.h"
#include "lockstep/data/read_corpus.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

using Role = ChatMessage::Role;

Example one_of(const std::string& line, const Columns& columns = {}) {
  return read_examples(line, "x.jsonl", columns).at(0);
}

TEST(ReadRows, ConversationsByRoleOrByFrom) {
  const std::vector<std::string> lines = {
      R"({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "a", "name": "x"},
                       {"role": "assistant", "content": "b", "tool_calls": [], "thinking": false}], "prompt": "a"})",
      R"({"conversations": [{"from": "system", "value": ""}, {"from": "human", "value": "a"},
                            {"from": "gpt", "value": "b"}], "text": "whole"})"};
  for (std::string line : lines) {
    std::erase(line, '\n');
    const Example example = one_of(line);
    EXPECT_EQ(example.kind, Example::Kind::conversation);
    ASSERT_EQ(example.messages.size(), 3U);
    EXPECT_EQ(example.messages[0].role, Role::system);
    EXPECT_EQ(example.messages[1].role, Role::user);
    EXPECT_EQ(example.messages[2].role, Role::assistant);
    EXPECT_EQ(example.messages[1].content + example.messages[2].content, "ab");
    EXPECT_TRUE(example.prompt.empty() && example.answer.empty());
  }
}

TEST(ReadRows, InstructionsWithThePromptOfAlpaca) {
  const Example with = one_of(R"({"instruction": "Add", "input": "2, 3", "output": "5", "text": "x"})");
  EXPECT_EQ(with.kind, Example::Kind::instruction);
  EXPECT_EQ(with.prompt,
            "Below is an instruction that describes a task, paired with an input that provides further "
            "context. Write a response that appropriately completes the request.\n\n### Instruction:\nAdd\n\n"
            "### Input:\n2, 3\n\n### Response:");
  EXPECT_EQ(with.answer, "5");
  for (const char* line :
       {R"({"instruction": "Add", "output": "5"})", R"({"instruction": "Add", "input": "", "output": "5"})",
        R"({"instruction": "Add", "input": null, "output": "5"})"})
    EXPECT_EQ(one_of(line).prompt,
              "Below is an instruction that describes a task. Write a response that appropriately completes "
              "the request.\n\n### Instruction:\nAdd\n\n### Response:");
}

TEST(ReadRows, ColumnsThatTheUserNames) {
  const std::string line =
      R"({"question": "2+2", "answer": "4", "text": 7, "chat": [{"role": "assistant", "content": "b"}]})";
  const Example pair = one_of(line, columns_of(" question : answer"));
  EXPECT_EQ(pair.prompt + pair.answer, "2+24");
  const Example text = one_of(line, columns_of("question"));
  EXPECT_EQ(text.prompt, "");
  EXPECT_EQ(text.answer, "2+2");
  EXPECT_EQ(one_of(line, columns_of("chat")).messages.size(), 1U);
  expect_contains(user_error([&] { one_of("\n" + line, columns_of("question:reply")); }),
                  {"x.jsonl:2 has no column \"reply\" of columns = question:reply",
                   R"(it has the keys "answer", "chat", "question", "text")"});
  for (const char* wrong : {"", ":", "a:", ":b", "a:b:c"})
    expect_contains(user_error([&] { columns_of(wrong); }),
                    {"columns = " + std::string(wrong) + ": write PROMPT:ANSWER"});
}

TEST(ReadRows, NameTheLineAndWhatIsWrong) {
  const std::string user = R"({"role": "user", "content": "a"})",
                    assistant = R"({"role": "assistant", "content": "b"})";
  const auto chat = [](const std::string& list) { return "{\"messages\": " + list + "}"; };
  const std::vector<std::pair<std::string, std::string>> bad = {
      {chat("[]"), "messages has no message of the assistant"},
      {chat("[" + user + "]"), "messages has no message of the assistant"},
      {chat("\"text\""), "messages is \"text\": it must be a list"},
      {chat("[7]"), "messages[0] is 7: it must be an object with \"role\" and \"content\""},
      {chat("[" + user + R"(, {"role": "tool", "content": "b"}])"),
       "messages[1].role is \"tool\": it must be system"},
      {chat(R"([{"role": "user"}])"), "messages[0] has the key \"role\": a message has"},
      {chat(R"([{"role": "user", "content": [{"type": "image"}]}])"),
       "messages[0].content is [{\"type\":\"image\"}]: it must be a text"},
      {chat(R"([{"role": "assistant", "content": null}])"),
       "messages[0].content is missing: it must be a text"},
      {chat(R"([{"role": "assistant", "content": ""}])"), "messages[0].content is empty"},
      {chat(R"([{"role": "assistant", "content": "a", "tool_calls": [{}]}])"),
       "messages[0].tool_calls is [{}], which is not supported"},
      {chat(R"([{"role": "assistant", "content": "a", "reasoning_content": "so"}])"),
       "reasoning_content is \"so\""},
      {"{\"messages\": [" + assistant + "], \"tools\": [{}]}", "tools is [{}], which is not supported"},
      {"{\"messages\": [" + assistant + R"(], "prompt": "a", "answer": "b"})",
       "examples of several kinds: choose with columns"},
      {R"({"instruction": "a", "output": ""})", "output is empty"},
      {R"({"instruction": "a", "input": 3, "output": "b"})", "input is 3: it must be a text"}};
  for (const auto& [line, complaint] : bad)
    expect_contains(user_error([&, line = line] { read_examples("{\"text\": \"a\"}\n" + line, "x.jsonl"); }),
                    {"x.jsonl:2", complaint});
}

TEST(ReadRows, AFileHasExamplesOfOneKind) {
  const auto count = [](const std::string& lines) {
    return measure({.kind = Corpus::Kind::examples,
                    .title = "",
                    .source = "x.jsonl",
                    .documents = {{.name = "x.jsonl", .path = "", .text = lines}}});
  };
  const std::string pair = "{\"prompt\": \"a\", \"answer\": \"b\"}\n", text = "{\"text\": \"c\"}\n";
  const std::string chat =
      R"({"messages": [{"role": "assistant", "content": "d"}, {"role": "assistant", "content": "e"}]})"
      "\n";
  EXPECT_EQ(count(pair + text).answers, 2);
  const CorpusFacts facts = count(chat + "\n" + chat);
  EXPECT_EQ(facts.count, 2);
  EXPECT_EQ(facts.answers, 6) << "two answers each, and what may follow them";
  EXPECT_EQ(facts.kind, Example::Kind::conversation);
  EXPECT_EQ(facts.alphabet, "de");
  expect_contains(user_error([&] { count("\n" + pair + chat); }),
                  {"x.jsonl:3 is a conversation, but line 2 is a text or a prompt"});
  expect_contains(user_error([&] { count(chat + R"({"instruction": "a", "output": "b"})"); }),
                  {"x.jsonl:2 is an instruction, but line 1"});
}

}  // namespace
}  // namespace lockstep
