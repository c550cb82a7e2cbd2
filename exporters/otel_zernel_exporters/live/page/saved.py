"""The page in one file, with a state in place of the stream. It needs no network; its policy forbids all requests."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from otel_zernel_exporters.live.page.files import DOCUMENT, page_texts
from otel_zernel_libraries.output_files import inline_hash, inline_json

_MAIN: Final = "main.js"
_IMPORT: Final = re.compile(r'^(import|export) (\{[^}]*\}) from "\./(\w+\.js)";.*$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:const|function|class) (\w+))", re.MULTILINE)
_STYLE: Final = re.compile(r'^<link rel="stylesheet" href="live/(\w+\.css)">\n', re.MULTILINE)
_SCRIPT: Final = re.compile(r'^<script type="module" src="live/\w+\.js"></script>\n', re.MULTILINE)
_NO_SCRIPT: Final = re.compile(r"^<noscript>.*</noscript>\n", re.MULTILINE)


def saved_page(state: Mapping[str, Any]) -> str:
    """The HTML document."""
    texts = {name: text.decode("utf-8") for name, text in page_texts().items()}
    document = texts[DOCUMENT]
    style = "".join(texts[name] for name in _STYLE.findall(document))
    script = _as_one_script(texts)
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {inline_hash(style)}; script-src {inline_hash(script)}"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n</head>'
    data = inline_json(json.dumps(state, separators=(",", ":")))
    end = f'<script type="application/json" id="state">{data}</script>\n<script>{script}</script>\n</body>'
    for pattern in (_STYLE, _SCRIPT, _NO_SCRIPT):
        document = pattern.sub("", document)
    return document.replace("</head>", head, 1).replace("</body>", end, 1)


def _as_one_script(texts: Mapping[str, str]) -> str:
    """The modules as functions, which return what the modules export. Each one follows those that it imports."""
    written: dict[str, str] = {}

    def write(name: str) -> None:
        text = texts[name]
        imports = [(word, names, needed) for word, names, needed in _IMPORT.findall(text)]
        for _, _, needed in imports:
            if needed not in written:
                write(needed)
        passed_on = [names.strip("{} ") for word, names, _ in imports if word == "export"]
        exports = ", ".join([*_EXPORT.findall(text), *passed_on])
        body = _IMPORT.sub(lambda match: f"const {match[2]} = {_variable(match[3])};", text)
        body = _EXPORT.sub("", body)
        written[name] = f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"

    write(_MAIN)
    return '"use strict";\n' + "".join(written.values())


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js')}"
