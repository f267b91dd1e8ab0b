// SPDX-License-Identifier: Apache-2.0
// Pages that people read stay short, show code that is compiled, and quote sentences that the library says.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/tree/lint.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = RONDO_SOURCE_DIR;

// The first row whose beginning and end fit a page decides.
struct Budget {
  std::string_view begins, ends;
  std::size_t lines;
};
constexpr Budget kBudgets[] = {
    {"README.md", "", 150},
    {"docs/decisions/", "", 120},
    {"docs/", "", 250},  // guides
    {"", ".md", 90},     // folder pages
};
constexpr std::size_t kMostDecisions = 16;  // of a folder page; others belong into docs/decisions

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// All that people write; what programs write lies below bench/results.
std::vector<std::string> pages() {
  std::vector<std::string> found;
  for (auto at = fs::recursive_directory_iterator(kRoot); at != fs::recursive_directory_iterator(); ++at) {
    const std::string path = fs::relative(at->path(), kRoot).generic_string();
    const bool of_no_interest = at->path().filename().string().starts_with('.') || path.starts_with("build") ||
                                path.starts_with("bench/results/2");
    if (at->is_directory() && of_no_interest) at.disable_recursion_pending();
    if (at->is_regular_file() && !of_no_interest && path.ends_with(".md")) found.push_back(path);
  }
  return found;
}

std::string_view first_cell(std::string_view row) {
  return row.starts_with("| ") ? row.substr(2, row.find(" |", 2) - 2) : std::string_view();
}

// The string literals of a source, adjacent ones joined, "…" for what a format fills in.
std::string said_by(const rondo::tree::Source& source) {
  const std::string code = rondo::tree::strip(source.text, true);
  std::string said;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const bool is_char = code[i] == '\'' && (i == 0 || std::isalnum(static_cast<unsigned char>(code[i - 1])) == 0);
    if (is_char) i += code[i + 1] == '\\' ? 3 : 2;
    if (is_char || code[i] != '"') continue;
    for (++i; i < code.size() && code[i] != '"'; ++i) {
      if (code[i] == '\\') {
        said += code[++i];
      } else if (code[i] == '{') {
        i = std::min(code.find('}', i), code.size() - 1);
        if (!said.ends_with("…")) said += "…";
      } else {
        said += code[i];
      }
    }
    const std::size_t next = code.find_first_not_of(" \n", i + 1);
    if (next == std::string::npos || code[next] != '"') said += '\n';
  }
  return said;
}

std::vector<std::string> trimmed(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  for (std::string& line : lines) line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
  return lines;
}

// What says something to users.
std::vector<rondo::tree::Source> speakers() {
  auto sources = rondo::tree::read_tree(kRoot);
  std::erase_if(sources, [](const rondo::tree::Source& source) {
    return source.path.starts_with("tests/") || source.path.ends_with(".py");
  });
  return sources;
}

// The cells of a row of a table, without the blanks around them.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  for (std::size_t at = row.find("| "), end = 0; at != std::string::npos; at = end) {
    end = row.find(" |", at + 2);
    if (end == std::string::npos) break;
    cells.push_back(row.substr(at + 2, end - at - 2));
    ++end;
  }
  return cells;
}

// The enumerators of a header's ErrorCode, in order: the first one is 1.
std::vector<std::string> error_codes(const fs::path& header) {
  const std::string text = rondo::tree::strip(slurp(header), false);
  const auto begin = text.find("enum class ErrorCode {"), end = text.find('}', begin);
  REQUIRE(end != std::string::npos);
  const std::string list = text.substr(text.find('{', begin) + 1, end - begin);
  std::vector<std::string> codes;
  const std::regex name(R"(([a-z]\w*)( = \d+)?,)");
  for (auto at = std::sregex_iterator(list.begin(), list.end(), name); at != std::sregex_iterator(); ++at)
    codes.push_back((*at)[1]);
  return codes;
}

// What is wrong with the page's table of codes, a sentence each.
std::vector<std::string> faults_of_catalogue(const std::string& page, const std::vector<std::string>& codes,
                                             const std::vector<rondo::tree::Source>& sources) {
  constexpr std::size_t kCells = 6;  // code, number, meaning, the communicator, what to do, a sentence
  std::vector<std::string> faults, listed;
  for (const std::string& line : lines_of(page)) {
    const auto cells = cells_of(line);
    if (cells.size() != kCells || !cells[0].starts_with('`')) continue;
    const std::string code = cells[0].substr(1, cells[0].size() - 2);
    listed.push_back(code);
    const auto known = std::find(codes.begin(), codes.end(), code);
    if (known == codes.end()) {
      faults.push_back(code + " is no code");
      continue;
    }
    if (cells[1] != std::to_string(known - codes.begin() + 1)) faults.push_back(code + " has another number");
    if (std::any_of(cells.begin(), cells.end(), [](const std::string& cell) { return cell.empty(); }))
      faults.push_back(code + " has an empty cell");
    const std::string sentence = cells.back().substr(1, cells.back().size() - 2);
    const bool is_said = std::any_of(sources.begin(), sources.end(), [&](const rondo::tree::Source& source) {
      return source.text.find("ErrorCode::" + code) != std::string::npos &&
             said_by(source).find(sentence) != std::string::npos;
    });
    if (!is_said) faults.push_back("no source that throws " + code + " says '" + sentence + "'");
  }
  for (const std::string& code : codes) {
    if (std::count(listed.begin(), listed.end(), code) != 1) faults.push_back(code + " has not one row");
  }
  return faults;
}

// Of the page's blocks in a language those that stand in none of the files.
std::vector<std::string> invented(const std::string& page, const std::string& language,
                                  const std::vector<std::string>& files, int& blocks) {
  std::vector<std::string> found;
  const std::string begin = "```" + language + "\n";
  for (auto at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    const auto wanted = trimmed(block);
    const bool stands = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
      const auto lines = trimmed(slurp(kRoot / file));
      return std::search(lines.begin(), lines.end(), wanted.begin(), wanted.end()) != lines.end();
    });
    if (!stands) found.push_back(block);
    ++blocks;
  }
  return found;
}

}  // namespace

TEST_CASE("every page keeps to its budget of lines") {
  for (const std::string& page : pages()) {
    const std::size_t lines = lines_of(slurp(kRoot / page)).size();
    const Budget* budget = std::find_if(std::begin(kBudgets), std::end(kBudgets), [&](const Budget& row) {
      return page.starts_with(row.begins) && page.ends_with(row.ends);
    });
    REQUIRE(budget != std::end(kBudgets));
    INFO(page << " has " << lines << " lines; what is too much belongs into docs/decisions, or goes");
    CHECK(lines <= budget->lines);
  }
}

TEST_CASE("no page has the marks of a merge that was left unfinished") {
  for (const std::string& page : pages()) {
    CAPTURE(page);
    for (const std::string& line : lines_of(slurp(kRoot / page))) {
      for (const char* mark : {"<<<<<<< ", "=======", ">>>>>>> "}) CHECK(!line.starts_with(mark));
    }
  }
}

TEST_CASE("a folder's page has few decisions") {
  for (const std::string& page : pages()) {
    const std::string text = slurp(kRoot / page);
    const auto at = text.find("\n## Decisions\n");
    if (at == std::string::npos) continue;
    const auto lines = lines_of(text.substr(at));
    const auto decisions =
        std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("- "); });
    INFO(page << " has " << decisions << " decisions; others belong into docs/decisions");
    CHECK(static_cast<std::size_t>(decisions) <= kMostDecisions);
  }
}

TEST_CASE("every block of code that a guide shows stands in a source that is compiled") {
  const struct {
    const char *page, *language;
    std::vector<std::string> files;
    int least;
  } table[] = {
      {"docs/training.md", "cpp", {"examples/spirals.cpp"}, 11},
      {"docs/programs.md", "cpp", {"examples/heat.cpp", "tests/process/shrinker.cpp"}, 9},
      {"docs/programs.md", "cmake", {"tests/package/CMakeLists.txt"}, 1},
  };
  for (const auto& row : table) {
    int blocks = 0;
    INFO(row.page);
    CHECK(invented(slurp(kRoot / row.page), row.language, row.files, blocks) == std::vector<std::string>{});
    CHECK(blocks >= row.least);
  }
}

TEST_CASE("every sentence that docs/troubleshooting.md quotes is one that the library says") {
  std::string said;
  for (const rondo::tree::Source& source : speakers()) said += said_by(source);
  const std::regex quoted("`([^`]+)`");
  int quotes = 0;
  for (const std::string& line : lines_of(slurp(kRoot / "docs/troubleshooting.md"))) {
    const std::string cell(first_cell(line));
    for (auto at = std::sregex_iterator(cell.begin(), cell.end(), quoted); at != std::sregex_iterator(); ++at) {
      INFO((*at)[1]);
      CHECK(said.find((*at)[1]) != std::string::npos);
      ++quotes;
    }
  }
  CHECK(quotes > 40);
}

TEST_CASE("docs/errors.md has every code with its number, and a sentence that is thrown with it") {
  const auto codes = error_codes(kRoot / "comm/include/rondo/error.hpp");
  CHECK(codes.size() >= 9);
  const std::string page = slurp(kRoot / "docs/errors.md");
  const auto sources = speakers();
  CHECK(faults_of_catalogue(page, codes, sources) == std::vector<std::string>{});
  // What it is for, on a page that lacks a row, and whose sentence is of another code.
  auto more = codes;
  more.push_back("not_there");
  CHECK(faults_of_catalogue(page, more, sources) == std::vector<std::string>{"not_there has not one row"});
  std::string wrong = page;
  const std::string_view said = "`rank … called abort()`";
  wrong.replace(wrong.find(said), said.size(), "`nobody ever says this`");
  CHECK(faults_of_catalogue(wrong, codes, sources) ==
        std::vector<std::string>{"no source that throws aborted says 'nobody ever says this'"});
}

TEST_CASE("every test that docs/promises.md names is there") {
  std::string titles;
  for (const rondo::tree::Source& source : rondo::tree::read_tree(kRoot)) {
    if (source.path.starts_with("tests/")) titles += rondo::tree::strip(source.text, true);
  }
  const std::string page = slurp(kRoot / "docs/promises.md");
  const std::regex quoted("\"([^\"]+)\"");
  int tests = 0;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("| ") && !line.starts_with("| promise")) CHECK(std::regex_search(line, quoted));
    for (auto at = std::sregex_iterator(line.begin(), line.end(), quoted); at != std::sregex_iterator();
         ++at, ++tests) {
      INFO((*at)[1]);
      CHECK(titles.find("TEST_CASE(\"" + (*at)[1].str() + '"') != std::string::npos);
    }
  }
  CHECK(tests >= 14);
}

TEST_CASE("what pages link to exists, and docs/README.md lists every page of docs") {
  const std::regex link(R"(\]\(([^)#: ]+)(#[^)]*)?\))");
  for (const std::string& page : pages()) {
    const std::string text = slurp(kRoot / page);
    for (auto at = std::sregex_iterator(text.begin(), text.end(), link); at != std::sregex_iterator(); ++at) {
      INFO(page << " links to " << (*at)[1]);
      CHECK(fs::exists((kRoot / page).parent_path() / (*at)[1].str()));
    }
  }
  const std::string index = slurp(kRoot / "docs/README.md");
  for (const std::string& page : pages()) {
    if (!page.starts_with("docs/") || page == "docs/README.md") continue;
    INFO(page);
    CHECK(index.find("](" + page.substr(5) + ")") != std::string::npos);
  }
}
