// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/axis.h"
#include "lockstep/report/page.h"

namespace lockstep {
namespace {

// The plot's own units. It is stretched to its place on the page; strokes and texts keep their size.
constexpr double plot_width = 1000, plot_height = 300;
/// Ratio of the largest value to the smallest from which on a logarithmic axis shows more.
constexpr double wide_ratio = 8;
constexpr double least_logarithmic = 1e-30;
constexpr size_t styles = 12;

std::string coordinate(double value) {
  std::string text = fixed_text(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string style_class(size_t style) { return concat("s", style % styles + 1); }

/// The ranges of a chart's values.
class Extent {
 public:
  double x_least = std::numeric_limits<double>::infinity(), x_most = -x_least;
  double least = x_least, most = -x_least;

  explicit Extent(const Chart& chart) {
    add_x(0);
    add_x(chart.x_most);
    for (const ChartLine& line : chart.lines)
      for (const Bin& bin : line.series->bins()) add(bin, chart.x_begin);
    for (const ChartMark& mark : chart.marks) add_x(mark.x - chart.x_begin);
  }

 private:
  void add_x(double x) {
    x_least = std::min(x_least, x);
    x_most = std::max(x_most, x);
  }
  void add(const Bin& bin, double x_begin) {
    add_x(bin.x() - x_begin);
    if (bin.values == 0) return;
    least = std::min(least, bin.least);
    most = std::max(most, bin.most);
  }
};

Axis value_axis(const Chart& chart, const Extent& extent) {
  const bool is_wide = chart.is_logarithmic_if_wide && extent.least > least_logarithmic &&
                       extent.most > wide_ratio * extent.least;
  Axis axis(chart.begins_at_zero ? std::min(0.0, extent.least) : extent.least, extent.most, is_wide,
            chart.is_tall ? 7 : 5);
  axis.extend_to_ticks();
  return axis;
}

/// The lines of a chart as SVG.
class Plot {
 public:
  Plot(const Chart& chart, const Axis& x, const Axis& y) : chart_(chart), x_(x), y_(y) {}

  std::string svg() const {
    std::string content = tag("title", escaped(chart_.title));
    for (const double tick : y_.ticks())
      content += concat("<path class=\"grid\" d=\"M0 ", coordinate(y(tick)), "H1000\"/>");
    content += "\n";
    for (const ChartMark& mark : chart_.marks)
      content += concat("<path class=\"mark ", mark.kind, "\" d=\"M", coordinate(x(mark.x)), " 0V300\">",
                        tag("title", escaped(mark.title)), "</path>\n");
    for (const ChartLine& line : chart_.lines)
      if (line.has_band && line.series->is_condensed()) content += band(line);
    for (const ChartLine& line : chart_.lines) content += lines(line);
    return tag(
        concat("svg viewBox=\"0 0 1000 300\" width=\"100%\" height=\"100%\" preserveAspectRatio=\"none\" "
               "role=\"img\" aria-label=\"",
               escaped(description()), "\""),
        content);
  }

 private:
  double x(double value) const { return plot_width * x_.at(value - chart_.x_begin); }
  double y(double value) const { return plot_height * (1 - y_.at(value)); }
  std::string point(double at, double value) const {
    return concat(coordinate(x(at)), " ", coordinate(y(value)));
  }

  /// Returns what a screen reader reads.
  std::string description() const {
    std::string text = chart_.title;
    for (const ChartLine& line : chart_.lines) {
      const std::vector<Bin>& bins = line.series->bins();
      const auto last =
          std::find_if(bins.rbegin(), bins.rend(), [](const Bin& bin) { return bin.values > 0; });
      if (last == bins.rend()) continue;
      text += concat("; ", line.name, ": ", short_number(bins.front().values > 0 ? bins.front().mean() : NAN),
                     " at the start, ", short_number(last->mean()), " at the end");
    }
    return text;
  }

  /// Returns the range of the values of each bin as an area.
  std::string band(const ChartLine& line) const {
    std::string path;
    const std::vector<Bin>& bins = line.series->bins();
    for (size_t begin = 0; begin < bins.size(); ++begin) {
      if (bins[begin].values == 0) continue;
      size_t end = begin;
      std::string lower;
      for (; end < bins.size() && bins[end].values > 0; ++end) {
        path += (end == begin ? "M" : "L") + point(bins[end].x(), bins[end].most);
        lower = concat("L", point(bins[end].x(), bins[end].least), lower);
      }
      path += lower + "Z";
      begin = end;
    }
    return concat("<path class=\"band ", style_class(line.style), "\" d=\"", path, "\"/>\n");
  }

  /// Returns the means of the bins as lines, and a mark at the bottom where values are missing.
  std::string lines(const ChartLine& line) const {
    const std::vector<Bin>& bins = line.series->bins();
    const auto has_value = [&](size_t i) { return i < bins.size() && bins[i].values > 0; };
    std::string path, dots, missing;
    for (size_t i = 0; i < bins.size(); ++i) {
      const double at = bins[i].x();
      if (bins[i].missing > 0) missing += concat("M", coordinate(x(at)), " 300v-12");
      if (!has_value(i)) continue;
      const bool is_first = i == 0 || !has_value(i - 1);
      path += (is_first ? "M" : "L") + point(at, bins[i].mean());
      // A value between two gaps has no line.
      if (line.has_dots || (is_first && !has_value(i + 1)))
        dots += concat("M", point(at, bins[i].mean()), "h0");
    }
    const std::string style = style_class(line.style);
    std::string content = concat("<path class=\"line ", style, "\" data-name=\"", escaped(line.name),
                                 "\" d=\"", path, "\"/>\n");
    if (!dots.empty()) content += concat("<path class=\"dots ", style, "\" d=\"", dots, "\"/>\n");
    if (!missing.empty())
      content += concat("<path class=\"missing\" d=\"", missing, "\">",
                        tag("title", "values that are not finite"), "</path>\n");
    return content;
  }

  const Chart& chart_;
  const Axis& x_;
  const Axis& y_;
};

/// Returns the text of a tick of the x axis.
std::string x_text(const Chart& chart, double value) {
  if (chart.over == ChartX::steps) return (value == 0 ? "step " : "") + whole_text(std::llround(value));
  return value == 0 ? "0" : duration_text(value);
}

std::string labels(const Chart& chart, const Axis& x, const std::vector<double>& x_ticks, const Axis& y) {
  std::string content;
  for (const double tick : y.ticks())
    content += concat("<span class=\"y\" style=\"top:", percent_text(1 - y.at(tick)), "\">",
                      short_number(tick), "</span>");
  for (const double tick : x_ticks) {
    const double at = x.at(tick);
    const char* edge = at > 0.93 ? " last" : at < 0.03 ? " first" : "";
    content += concat("<span class=\"x", edge, "\" style=\"left:", percent_text(at), "\">",
                      x_text(chart, tick), "</span>");
  }
  return content;
}

/// Returns the ticks of the x axis within its ends.
std::vector<double> x_ticks(const Chart& chart, const Axis& x) {
  const int most_ticks = chart.is_tall ? 6 : 4;
  std::vector<double> ticks;
  if (chart.over == ChartX::time) {
    const double step = seconds_between_ticks(x.most(), most_ticks);
    for (int i = 0; i * step <= x.most(); ++i) ticks.push_back(i * step);
    return ticks;
  }
  const Axis axis(x.least(), x.most(), false, most_ticks);
  for (const double tick : axis.ticks())
    if (tick >= x.least() && tick <= x.most() && tick == std::floor(tick)) ticks.push_back(tick);
  return ticks;
}

}  // namespace

bool Chart::has_values() const {
  return std::ranges::any_of(lines, [](const ChartLine& line) {
    return std::ranges::any_of(line.series->bins(), [](const Bin& bin) { return bin.values > 0; });
  });
}

std::string Chart::html() const {
  const Extent extent(*this);
  const Axis x(extent.x_least, extent.x_most, false, 4);
  const Axis y = value_axis(*this, extent);
  const std::string of_unit = unit.empty() ? "" : " " + tag("span class=\"unit\"", escaped(unit));
  const std::string logarithmic = y.is_logarithmic() ? tag("span class=\"unit\"", ", logarithmic") : "";
  const std::string plot =
      concat("div class=\"plot\" data-x=\"", x.least(), " ", x.most(), " ", over == ChartX::time ? 1 : 0,
             "\" data-y=\"", y.least(), " ", y.most(), " ", y.is_logarithmic() ? 1 : 0, "\"");
  return tag(is_tall ? "figure class=\"tall\"" : "figure",
             "\n" + tag("figcaption", tag("b", escaped(title)) + of_unit + logarithmic) + "\n" +
                 tag(plot, Plot(*this, x, y).svg() + labels(*this, x, x_ticks(*this, x), y)) + "\n") +
         "\n";
}

std::string line_sample(size_t style) {
  return concat("<svg class=\"sample\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"line ",
                style_class(style), "\" d=\"M0 5H28\"/></svg>");
}

std::string chart_key(const std::vector<ChartLine>& lines) {
  std::string content;
  for (const ChartLine& line : lines)
    content += tag("span", line_sample(line.style) + " " + escaped(line.name)) + "\n";
  return tag("p class=\"key\"", content) + "\n";
}

}  // namespace lockstep
