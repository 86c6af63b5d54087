"""`python -m benchmarks.ingest`: what reading files costs, each in a process of its own, and how well OCR reads."""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from gateway.ingest.ocr import Rapid, Tesseract, tesseract
from gateway.ingest.output import ExtractedFile
from gateway.ingest.reading import read_file
from tests.ingest import samples
from tests.ingest.pictures import ENGLISH, error_rate, noisy, pictures, written


class Cost(NamedTuple):
    """Of one call in a fresh process; memory is its peak in MB of 1024² bytes."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def files() -> Iterator[tuple[str, bytes]]:
    """A sizeable one of each kind."""
    paragraph = " ".join(ENGLISH)
    page = "<html><body>" + f"<p>{paragraph}</p>" * 5_000 + "</body></html>"
    yield "PDF, 100 pages of text", samples.pdf(*[paragraph] * 100)
    yield "PDF, 10,000 pages", samples.pdf(*[paragraph] * 10_000)
    yield "PDF, a scan of 2 pages", samples.scan()
    yield "picture of text, 1072 × 248", samples.picture()
    yield "photo, 12 megapixels", samples.encoded(noisy(written(ENGLISH, 120)).resize((4000, 3000)), "JPEG")
    yield "Word document", samples.docx()
    yield "slides", samples.pptx()
    yield "spreadsheet, 20,000 rows", samples.xlsx(rows=20_000)
    yield "web page, 0.8 MB", page.encode()
    yield "book, 2 chapters", samples.epub()
    yield "text, 5 MB", (paragraph + "\n").encode() * (5 * 1024**2 // len(paragraph))
    yield "zip, 10,000 names", samples.zipped({f"folder/{number}": "" for number in range(10_000)})
    yield "letter", samples.letter()


def cost(content: bytes) -> tuple[Cost, ExtractedFile]:
    """Runs in the fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(content)
        target.mkdir()
        wall, cpu = time.perf_counter(), time.process_time()
        derived = ExtractedFile.from_json(read_file(str(source), str(target), "", ""))
        spent = Cost(time.perf_counter() - wall, time.process_time() - cpu, peak_mb())
    return spent, derived


def quality(engine: Tesseract | Rapid) -> None:
    """Wrong characters of each picture; the engine is warm."""
    rates = []
    for picture in pictures():
        began = time.process_time()
        rates.append(error_rate(engine.read(picture.image), picture.text))
        print(f"| {picture.name:28} | {rates[-1]:6.1%} wrong | {time.process_time() - began:6.2f} CPU s |")
    began = time.process_time()
    engine.read(samples.page_of(ENGLISH * 8).resize((1654, 2338)))
    print(
        f"| {'all; an A4 page of 200 dpi':28} | {mean(rates):6.1%} wrong | {time.process_time() - began:6.2f} CPU s |"
    )


def peak_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, content in files():
            spent, derived = pool.submit(cost, content).result()
            found = f"{derived.pages:3} pages | {derived.characters:9,} characters | {derived.problem}"
            told = f"{spent.wall_s:6.2f} s | {spent.cpu_s:6.2f} CPU s | {spent.peak_mb:5.0f} MB"
            print(f"| {name:28} | {told} | {found}")
    for title, engine in (("RapidOCR (comes along)", Rapid()), ("Tesseract (of the system)", tesseract())):
        print(f"\n{title}{'' if engine else ': not there'}")
        if engine is not None:
            quality(engine)


if __name__ == "__main__":
    main()
