"""The library's reference from its headers: a page a room, with what `///` says above each public declaration, and the declaration
without its body. Not: a C++ parser; it relies on .clang-format's indentation.
"""
import pathlib
import re

root = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = root / "include" / "tawpipe"
BODY = re.compile(r"\{|(?<!:):(?!:)")
LONGEST = 40  # lines of a table of constants that are still shown


def kind(lines, at):
    """The first word of the declaration that begins at lines[at], after `template <...>` and `requires ...`."""
    text = "\n".join(lines[at:at + 12]).lstrip()
    while text.startswith(("template", "requires")):
        if text.startswith("requires"):
            text = text.partition("\n")[2].lstrip()
            continue
        depth = 0
        for i, character in enumerate(text):
            depth += (character == "<") - (character == ">" and text[i - 1] != "-")
            if character == ">" and depth == 0:
                text = text[i + 1:].lstrip()
                break
    return re.match(r"\w*", text).group()


def statement(lines, at):
    """The declaration that begins at lines[at], without a function's body, and the line after the whole."""
    text, end, braces, parens, is_function = "", None, 0, 0, False
    has_body = kind(lines, at) not in ("concept", "using", "enum")
    while at < len(lines):
        line = lines[at]
        at += 1
        code = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*', lambda found: "0" * len(found.group()), line)
        for i, character in enumerate(code):
            if end is None and has_body and is_function and parens == 0 and braces == 0 and BODY.match(code, i):
                end = (text + line[:i]).rstrip() + ";"
            parens += (character in "([") - (character in ")]")
            braces += (character == "{") - (character == "}")
            is_function = is_function or (character == ")" and parens == 0 and braces == 0)
        text += line + "\n"
        if parens == 0 and braces <= 0 and re.search(r"[;}]\s*(0*)$", code):
            break
    return end or text, at


def members(lines, indent):
    """The public part of a class, with the comments in it."""
    shown, comment, at, public = [], [], 0, True
    while at < len(lines):
        line = lines[at]
        words = line.strip()
        if words in ("public:", "private:", "protected:"):
            public = words == "public:"
            at += 1
        elif words.startswith("///") and not words.startswith("///<"):
            comment.append(line)
            at += 1
        elif not words or words.startswith("//"):
            comment = [] if not words else comment
            if not words and shown and shown[-1]:
                shown.append("")
            at += 1
        elif kind(lines, at) in ("class", "struct", "union"):
            text, at = type_of(lines, at, indent)
            shown += [*comment, *text] if public else []
            comment = []
        else:
            text, at = statement(lines, at)
            if public and "friend " not in text:
                shown += [*comment, *text.rstrip().splitlines()]
            comment = []
    while shown and not shown[-1]:
        shown.pop()
    return shown


def type_of(lines, at, indent):
    """A class or struct as lines, and the line after it. indent: of its first line"""
    begin = at
    while not re.search(r"\{|;$", re.sub(r"//.*", "", lines[at])):
        at += 1
    head = lines[begin:at + 1]
    if re.search(r"\};?\s*(?:///<.*)?$|;$", head[-1]):
        return head, at + 1
    end = at + 1
    while not lines[end].startswith(" " * indent + "}"):
        end += 1
    inside = [line for line in lines[at + 1:end]]
    shown = [re.sub(r"^ ( *(?:public|private|protected):)$", r"\1", line) for line in inside]
    if kind(lines, begin) == "class":
        shown = shown[next((i + 1 for i, line in enumerate(shown) if line.strip() == "public:"), len(shown)):]
    return [*head, *members(shown, indent + 2), lines[end]], end + 1


def prose(comment):
    """`///` lines as Markdown: tags as a list, code as it is."""
    out, code = [], False
    for line in comment:
        text = re.sub(r"^/// ?", "", line)
        if text.startswith("```"):
            code = not code
            out += ["", text] if code else [text]
            continue
        if not code:
            text = re.sub(r"(`[^`]*`)|<", lambda found: found.group(1) or "&lt;", text)
            text = re.sub(r"(`[^`]*`)|(\*\w+\*)|([*_])", lambda found: found.group(1) or found.group(2) or "\\" + found.group(3), text)
            tag = re.match(r"\s*@(param|return|throws|pre|see|tparam)\s+(\S+)?", text)
            text = re.sub(r" @(param|return|throws|pre|see|tparam) ", r"\n* *\1* ", text)
            if tag:
                text = re.sub(r"^\s*@(\w+) ", r"\n* *\1* ", text)
            text = re.sub(r"^(Complexity|Source|Example|Thread-safe)\b", r"\n\1", text)
        out.append(text)
    return "\n".join(out).strip() + "\n"


def name_of(text):
    words = re.sub(r"template <.*?>\n|\brequires [^\n]*\n", "", text)
    found = (re.search(r"\b(?:class|struct|concept|enum class|enum|using|union)\s+(?:\[\[\w+\]\]\s+)?(\w+)", words)
             or re.search(r"(operator[^\s(]+|\w+)\s*\(", words) or re.search(r"(\w+)\s*(?:\[\])?\s*[={;]", words))
    return found.group(1) if found else ""


def declarations(path):
    """(name, comment, lines) of each documented declaration of a header, in its order."""
    lines = path.read_text().splitlines()
    at, comment, hidden = 0, [], False
    while at < len(lines):
        line = lines[at]
        if line.startswith("namespace"):
            hidden = "detail" in line
        elif line.startswith("}  // namespace"):
            hidden = False
        elif line.startswith("///"):
            comment.append(line)
            at += 1
            continue
        elif not line.strip() or line.startswith(("#", "//", "}")):
            comment = []
        elif not hidden and comment:
            if kind(lines, at) in ("class", "struct", "union"):
                text, at = type_of(lines, at, 0)
            else:
                text, at = statement(lines, at)
                text = text.rstrip().splitlines()
            yield name_of("\n".join(text)), comment, text if len(text) <= LONGEST or text[0].startswith(("class", "struct", "template")) else text[:1]
            comment = []
            continue
        elif not hidden or not comment:
            _, at = statement(lines, at)
            comment = []
            continue
        at += 1


def pages():
    """{room: Markdown} of all rooms that a program may include."""
    found = {}
    for room in sorted(path for path in INCLUDE.iterdir() if path.is_dir()):
        text = ""
        for header in sorted(room.rglob("*.hpp")):
            if "detail" in header.parts or header.name == "fwd.hpp":
                continue
            known = list(declarations(header))
            if not known:
                continue
            lines = header.read_text().splitlines()
            what = " ".join(line.removeprefix("// ") for line in lines[:lines.index("#pragma once")] if line.startswith("// "))
            what = re.sub(r"\bNot: .*", "", what).strip()
            text += f"\n## {header.relative_to(INCLUDE)}\n\n{prose([what])}\n"
            for name, comment, code in known:
                text += f"\n### {name}\n\n{prose(comment)}\n```cpp\n" + "\n".join(code) + "\n```\n"
        if text:
            found[room.name] = f"# {room.name}\n{text}"
    return found


if __name__ == "__main__":
    for room, text in pages().items():
        print(text)
