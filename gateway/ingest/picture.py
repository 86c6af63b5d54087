"""Pictures, and scans of several pages: upright, and without their metadata."""

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.ocr import SCAN_SIDE, Ocr
from gateway.ingest.output import MAX_PIXELS, OCR_PAGES, Output, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF", "ICO")


def read_image(source: Path, out: Output) -> str:
    """Read every page of a TIFF, or the first frame of an animation; returns the description."""
    with _opened(source) as image:
        count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        pages = f", {count} pages" if count > 1 else ""
        description = f"{image.format} picture, {image.width} × {image.height}{pages}"
        recognise = Ocr(out).read
        for index in range(count):
            if out.recognised >= OCR_PAGES or not out.has_ocr_time:
                out.problem = f"only the first {index} of {count:,} pages were read"
                break
            out.recognised += 1
            image.seek(index)
            page = _decoded(image)
            if not index:
                out.set_view(page)
            text = recognise(page)
            out.add(text)
            out.add_image(page)
            if not text and out.nested:
                out.leave_out("picture without text")
    first_line = out.first_line()
    return description + (f", reads: {first_line}" if first_line else "")


def _opened(source: Path) -> "Image":
    """Open the picture without decoding it; raises `Unreadable`."""
    from pi_heif import register_heif_opener
    from PIL import Image, UnidentifiedImageError

    register_heif_opener(thumbnails=False)
    try:
        return Image.open(source, formats=_FORMATS)
    except Image.DecompressionBombError:
        raise Unreadable("the picture has too many pixels to be opened") from None
    except UnidentifiedImageError:
        raise Unreadable("the picture is damaged or in an unsupported format") from None


def _decoded(image: "Image") -> "Image":
    """The current frame, upright, on white, without metadata, no larger than a scan."""
    from PIL import Image, ImageOps

    if image.width * image.height > MAX_PIXELS:
        raise Unreadable(f"the picture has {image.width} × {image.height} pixels, more than allowed")
    image.draft("RGB", (SCAN_SIDE, SCAN_SIDE))
    alpha = "A" in image.getbands() or "transparency" in image.info
    small = image.convert("RGBA" if alpha else "RGB")
    small.thumbnail((SCAN_SIDE, SCAN_SIDE), Image.Resampling.LANCZOS)
    small = ImageOps.exif_transpose(small)
    plain = Image.new("RGB", small.size, "white")
    plain.paste(small, mask=small if alpha else None)
    return plain
