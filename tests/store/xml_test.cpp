// SPDX-License-Identifier: Apache-2.0
#include "store/xml.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

TEST(Xml, ReadsWhatS3Answers) {
  const XmlElement root = parse_xml(
      "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\" a='>'>\n"
      "  <IsTruncated>false</IsTruncated><Prefix/><Contents><Key>a &amp; b</Key></Contents >\n"
      "  <Contents><Key>&lt;&#252;&#xfc;&#x1F600;&gt;&quot;&apos;</Key><Size>5</Size></Contents>\n"
      "</ListBucketResult>\n");
  EXPECT_EQ(root.name, "ListBucketResult");
  EXPECT_EQ(root.text_of("IsTruncated"), "false");
  EXPECT_EQ(root.text_of("Prefix"), "");
  EXPECT_EQ(root.text_of("Absent"), "");
  ASSERT_EQ(root.children.size(), 4u);
  EXPECT_EQ(root.children[2].text_of("Key"), "a & b");
  EXPECT_EQ(root.children[3].text_of("Key"), "<\u00fc\u00fc\U0001F600>\"'");
}

TEST(Xml, RefusesEverythingElse) {
  for (const char* document : {"",
                               "text",
                               "<a>",
                               "<a></b>",
                               "<a></a",
                               "<a><b></a></b>",
                               "<a/><b/>",
                               "<a b></a>",
                               "<a b=c></a>",
                               "<a b=\"c></a>",
                               "<a>&unknown;</a>",
                               "<a>&#0;</a>",
                               "<a>&#x110000;</a>",
                               "<a>&#12x;</a>",
                               "<a>&amp</a>",
                               "<!DOCTYPE a><a/>",
                               "<a><!-- comment --></a>",
                               "<a><![CDATA[text]]></a>",
                               "<?xml version=\"1.0\"",
                               "<a/>text",
                               "< a/>"})
    EXPECT_THROW(parse_xml(document), Error) << document;
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THROW(parse_xml(deep), Error);
}

TEST(Xml, EscapesWhatItReads) {
  const std::string text = "a<b>&\"c\"'d' \u00fc";
  EXPECT_EQ(parse_xml("<a>" + escape_xml(text) + "</a>").text, text);
}

}  // namespace
}  // namespace lockstep
