"""Annotations of PDF pages: values of forms, ticks, and notes (ISO 32000-2, 12.5 and 12.7)."""

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

_MAX_ANNOTATIONS = 5_000
_MAX_BYTES = 64 * 1024
"""Bytes of one text."""
_LABEL_POINTS = 200

_Handle: TypeAlias = object


class _Getter(Protocol):
    def __call__(self, *arguments: object) -> int:
        """Fill the buffer, the last argument but one, with UTF-16; returns the bytes needed."""


def annotations(page: "PdfPage") -> Iterator[str]:
    """A line for each field that is filled in, each tick, and each note."""
    import pypdfium2.raw as pdfium

    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        if annotation := pdfium.FPDFPage_GetAnnot(page, index):
            try:
                yield from _line(page, annotation)
            finally:
                pdfium.FPDFPage_CloseAnnot(annotation)


def _line(page: "PdfPage", annotation: _Handle) -> Iterator[str]:
    import pypdfium2.raw as pdfium

    subtype = pdfium.FPDFAnnot_GetSubtype(annotation)
    if subtype == pdfium.FPDF_ANNOT_WIDGET and page.formenv is not None:
        label = _label(page, annotation) or _text(pdfium.FPDFAnnot_GetFormFieldName, page.formenv, annotation)
        yield from _field(page.formenv, annotation, label)
    elif subtype == pdfium.FPDF_ANNOT_FILEATTACHMENT:
        yield "[a file is attached here that isn't read; send it by itself]"
    elif subtype == pdfium.FPDF_ANNOT_LINK:
        yield from _link(page, annotation)
    elif subtype != pdfium.FPDF_ANNOT_POPUP and (note := _string(annotation, b"Contents")):
        author = _string(annotation, b"T")
        yield f"[note{f' by {author}' if author else ''}: {note}]"


def _link(page: "PdfPage", annotation: _Handle) -> Iterator[str]:
    """The address behind words that don't show it."""
    import pypdfium2.raw as pdfium

    buffer, box = ctypes.create_string_buffer(_MAX_BYTES), pdfium.FS_RECTF()
    action = pdfium.FPDFLink_GetAction(pdfium.FPDFAnnot_GetLink(annotation))
    pdfium.FPDFAction_GetURIPath(page.pdf.raw, action, buffer, _MAX_BYTES)
    pdfium.FPDFAnnot_GetRect(annotation, box)
    address, corners = buffer.value.decode("utf-8", "replace"), (box.left, box.bottom, box.right, box.top)
    words = str(page.get_textpage().get_text_bounded(*corners)) if address else ""
    if address not in words:
        yield f"[link behind “{' '.join(words.split())}”: {address}]"


def _label(page: "PdfPage", annotation: _Handle) -> str:
    """The words on the left of a field."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, box)
    left, middle = max(0.0, box.left - _LABEL_POINTS), (box.top + box.bottom) / 2
    words = page.get_textpage().get_text_bounded(left, middle - 4, box.left, middle + 4)
    return str(words).strip().rpartition("\n")[2].rstrip(" :_.")


def _field(form: _Handle, annotation: _Handle, name: str) -> Iterator[str]:
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    value = _text(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        option = _text(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        shown = f" {option}" if option.lower() not in {"", "yes", "on", "1"} else ""
        yield f"{name}: [{'x' if pdfium.FPDFAnnot_IsChecked(form, annotation) else ' '}]{shown}"
    elif kind == pdfium.FPDF_FORMFIELD_SIGNATURE:
        yield f"{name}: [signature field]"
    elif kind != pdfium.FPDF_FORMFIELD_PUSHBUTTON and value:
        yield f"{name}: {value}"


def _string(annotation: _Handle, key: bytes) -> str:
    import pypdfium2.raw as pdfium

    return _text(pdfium.FPDFAnnot_GetStringValue, annotation, key)


def _text(get: _Getter, *arguments: object) -> str:
    size = min(get(*arguments, None, 0), _MAX_BYTES)
    buffer = ctypes.create_string_buffer(size + 2)
    get(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return " ".join(buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0").split())
