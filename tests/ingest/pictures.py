"""Pictures of text, as people send them: what they say is known, so what was read can be compared."""

import random
from contextlib import suppress
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFilter, ImageFont

GERMAN = (
    "Sehr geehrte Frau Müller,",
    "für die Überweisung über 1.234,56 € danken",
    "wir Ihnen. Die Straße vor dem Büro ist schön,",
    "größer und heißt jetzt Königsallee 17.",
    "Mit freundlichen Grüßen, Jörg Weiß",
)
FRENCH = (
    "Où êtes-vous allés cet été, Hélène ?",
    "Le garçon a déjà mangé la crème brûlée.",
    "Ça coûte 45,90 € à la fenêtre du café.",
)
ENGLISH = (
    "Invoice 2024-0815 of 3 March 2024",
    "The quick brown fox jumps over the lazy dog.",
    "Please pay within 14 days to account",
    "GB29 NWBK 6016 1331 9268 19. Thank you!",
)
RECEIPT = (
    ("Coffee, large", "2", "3.90", "7.80"),
    ("Croissant", "3", "1.75", "5.25"),
    ("Orange juice", "1", "4.20", "4.20"),
    ("Water 0.5 l", "2", "2.10", "4.20"),
    ("TOTAL", "", "", "21.45"),
)


FONTS = ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Arial.ttf")
"""With accents, which Pillow's own has not."""


class Picture(NamedTuple):
    """An image and the lines on it."""

    name: str
    image: Image.Image
    text: str


def font_of(size: int) -> ImageFont.FreeTypeFont:
    """One of the system, or Pillow's own."""
    for name in FONTS:
        with suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size)


def written(lines: tuple[str, ...], size: int, ink: str = "black") -> Image.Image:
    """The lines, black on white, as letters of `size` pixels."""
    font = font_of(size)
    width = int(max(font.getlength(line) for line in lines)) + 4 * size
    image = Image.new("RGB", (width, int(len(lines) * size * 1.6) + 3 * size), "white")
    for row, line in enumerate(lines):
        ImageDraw.Draw(image).text((2 * size, 1.5 * size + row * size * 1.6), line, ink, font)
    return image


def receipt(size: int = 28) -> Image.Image:
    """A table without rules."""
    font = font_of(size)
    image = Image.new("RGB", (size * 26, size * 12), "white")
    for row, cells in enumerate(RECEIPT):
        for column, cell in zip((1, 13, 17, 21), cells, strict=True):
            ImageDraw.Draw(image).text((column * size, (1 + 1.8 * row) * size), cell, "black", font)
    return image


def noisy(image: Image.Image) -> Image.Image:
    """As a bad scanner gives it back: grey, speckled, a little askew."""
    chance = random.Random(7)
    image = image.convert("L").rotate(1.2, expand=True, fillcolor=255, resample=Image.Resampling.BICUBIC)
    noise = Image.frombytes("L", image.size, chance.randbytes(image.width * image.height))
    return Image.blend(image, noise, 0.25).filter(ImageFilter.GaussianBlur(0.6)).convert("RGB")


def photographed(image: Image.Image) -> Image.Image:
    """As a telephone sees it on a table: from the side, soft, in yellowish light."""
    width, height = image.size
    corners = (
        -0.06 * width,
        -0.05 * height,
        0.02 * width,
        1.06 * height,
        1.05 * width,
        1.02 * height,
        width,
        -0.1 * height,
    )
    seen = image.transform(image.size, Image.Transform.QUAD, corners, Image.Resampling.BICUBIC, fillcolor="white")
    soft = seen.filter(ImageFilter.GaussianBlur(1.0))
    return Image.blend(soft, Image.new("RGB", image.size, (150, 130, 90)), 0.35)


def pictures() -> list[Picture]:
    """Everything that is compared; without a font that has them, nothing with accents."""
    german, french, english = map("\n".join, (GERMAN, FRENCH, ENGLISH))
    table = "\n".join(" ".join(filter(None, row)) for row in RECEIPT)
    found = [
        *(Picture(f"English, {size} px", written(ENGLISH, size), english) for size in (16, 24, 40)),
        *(Picture(f"German, {size} px", written(GERMAN, size), german) for size in (16, 24, 40)),
        Picture("French, 32 px", written(FRENCH, 32), french),
        Picture("turned by 90°", written(ENGLISH, 32).transpose(Image.Transpose.ROTATE_90), english),
        Picture("turned by 180°", written(ENGLISH, 32).transpose(Image.Transpose.ROTATE_180), english),
        Picture("noisy scan", noisy(written(ENGLISH, 32)), english),
        Picture("photo", photographed(written(ENGLISH, 40)), english),
        Picture("receipt", receipt(), table),
    ]
    accents = ImageFont.load_default(20).getname() != font_of(20).getname()
    return found if accents else [picture for picture in found if picture.text.isascii()]


def error_rate(read: str, meant: str) -> float:
    """Edits (Levenshtein) per character meant, with runs of white space as one space."""
    read, meant = " ".join(read.split()), " ".join(meant.split())
    row = list(range(len(meant) + 1))
    for index, left in enumerate(read, 1):
        above, row[0] = row[0], index
        for column, right in enumerate(meant, 1):
            above, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, above + (left != right))
    return row[-1] / max(1, len(meant))
