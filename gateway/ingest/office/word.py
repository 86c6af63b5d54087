"""Word documents (Office Open XML)."""

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.archive import checked_zip, xml_part
from gateway.ingest.office.parts import add_parts
from gateway.ingest.output import Output
from gateway.ingest.text import html_text, parsed_html

if TYPE_CHECKING:
    from lxml.etree import _Element

_MAIN = "word/document.xml"
_FORMS = {"sup": "^({})", "sub": "_({})", "num": "({})", "den": "/({})", "rad": "√({})"}
"""Elements of equations as text."""
_AROUND = [f"{{*}}{name}" for name in ("moveTo", "fldSimple", "customXml", "bdo", "dir", "ruby", "rubyBase")]
"""Elements around text that the library leaves out with all that is in them."""


def read_docx(source: Path, out: Output) -> str:
    """Read the text, with equations and boxes, then its pictures and the rest; returns the description."""
    import mammoth

    with checked_zip(source, office=True) as archive:
        file = _with_equations(archive, out) if _MAIN in archive.NameToInfo else io.BytesIO(source.read_bytes())
        alone = mammoth.images.img_element(lambda _: {})  # the description; the picture is read as a file
        html = mammoth.convert_to_html(file, convert_image=alone, external_file_access=False).value
        out.add(html_text(parsed_html(html)))
        add_parts(archive, out)
    return f"Word document: {out.first_line()}"


def _with_equations(archive: zipfile.ZipFile, out: Output) -> io.BytesIO:
    """The document with equations as text; counts the passages that a tracked change deletes."""
    from lxml import etree

    root = xml_part(archive, _MAIN)
    deleted = sum(any(True for _ in each.iter("{*}delText")) for each in root.iter("{*}del"))
    out.leave_out("deleted passage (tracked change)", deleted)
    space = str(root.tag).rpartition("}")[0] + "}"
    for around in root.iter(*_AROUND):
        around.tag = space + "ins"
    for equation in list(root.iter("{*}oMath")):
        text = _equation(equation)
        run = etree.Element(space + "r")
        etree.SubElement(run, space + "t").text = text
        if (parent := equation.getparent()) is not None:
            run.tail = equation.tail
            # An equation on a line of its own stands in an element that isn't read.
            if str(parent.tag).endswith("}oMathPara") and (outer := parent.getparent()) is not None:
                outer.insert(outer.index(parent), run)
            else:
                parent.replace(equation, run)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as copy:
        for name in archive.NameToInfo:
            copy.writestr(name, etree.tostring(root) if name == _MAIN else archive.read(name))
    return file


def _equation(element: "_Element") -> str:
    name = str(element.tag).rpartition("}")[2]
    text = (element.text or "") if name == "t" else "".join(map(_equation, element))
    return _FORMS[name].format(text) if name in _FORMS and len(text) else text
