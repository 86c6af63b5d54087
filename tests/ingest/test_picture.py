from pathlib import Path

import pytest
from PIL import Image, UnidentifiedImageError

from gateway.ingest import ocr
from gateway.ingest.ocr import read_image
from gateway.ingest.output import LONG_SIDE, Output

ORIENTATION, GPS = 0x0112, 0x8825


def saved(tmp_path: Path, image: Image.Image, form: str, **options: object) -> Path:
    path = tmp_path / "picture"
    image.save(path, form, **options)
    return path


@pytest.fixture(autouse=True)
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        def read(self, image: Image.Image) -> str:
            return ""

    monkeypatch.setattr(ocr, "engine", Blind)


def shown(path: Path) -> Image.Image:
    """What a model is shown of it."""
    out = Output(path.parent)
    read_image(path, out)
    image = Image.open(path.parent / out.view)
    image.load()
    assert image.format == "JPEG"
    return image


def test_a_large_picture_becomes_small(tmp_path: Path) -> None:
    noise = Image.effect_noise((4000, 3000), 100).convert("RGB")
    path = saved(tmp_path, noise, "JPEG", quality=95)
    assert path.stat().st_size > 4 * 1024**2
    image = shown(path)
    assert max(image.size) == LONG_SIDE
    assert (tmp_path / "view.jpg").stat().st_size <= 500 * 1024


def test_a_photo_is_turned_upright_and_tells_nothing_of_where_it_was_taken(tmp_path: Path) -> None:
    photo = Image.new("RGB", (200, 100), "black")
    photo.paste("white", (0, 0, 100, 100))
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    exif.get_ifd(GPS)[2] = (52.0, 31.0, 0.0)
    image = shown(saved(tmp_path, photo, "JPEG", exif=exif, quality=95))
    assert image.size == (100, 200)
    assert image.getpixel((50, 20)) > (200, 200, 200) > image.getpixel((50, 180))
    assert not image.getexif()
    assert "exif" not in image.info


@pytest.mark.parametrize(("mode", "form"), [("RGBA", "PNG"), ("LA", "PNG"), ("RGBA", "WEBP")])
def test_what_is_transparent_is_white(mode: str, form: str, tmp_path: Path) -> None:
    clear = Image.new(mode, (50, 50), 0)
    assert shown(saved(tmp_path, clear, form)).getpixel((25, 25)) == (255, 255, 255)


def test_of_an_animation_the_first_frame_is_shown(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (50, 50), colour) for colour in ("white", "black")]
    assert (
        shown(saved(tmp_path, frames[0], "GIF", save_all=True, append_images=frames[1:])).getpixel((9, 9)) == (255,) * 3
    )


@pytest.mark.parametrize(
    ("mode", "form"), [("1", "TIFF"), ("CMYK", "JPEG"), ("I;16", "PNG"), ("P", "GIF"), ("L", "BMP")]
)
def test_pictures_of_any_depth_are_shown(mode: str, form: str, tmp_path: Path) -> None:
    assert shown(saved(tmp_path, Image.new(mode, (40, 30)), form)).size == (40, 30)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0")
    with pytest.raises(UnidentifiedImageError):
        read_image(path, Output(tmp_path))
