"""How much of a file is read. What goes beyond is left out, and said."""

SECONDS = 300.0
"""For one file; what was read is lost after it, so readers stop well before."""
SPACE = 256 * 1024**2
"""Bytes on disk of all that is made of one file."""
MEMORY = 2 * 1024**3
"""Address space for one call of `read`, beside the libraries loaded before it; OCR is what needs it."""
OCR_SECONDS = 180.0
"""After this much time no further page is recognised."""

TEXT = 5 * 1024**2
"""Characters of text kept of one file."""
SOURCE = 20 * 1024**2
"""Bytes that are read of a file that is read as a whole."""
PAGES = 500
OCR_PAGES = 50
PIXELS = 64_000_000
"""A picture with more is not decoded."""
PAGE_IMAGES = 50
IMAGE_BYTES = 40 * 1024**2
"""All page images of a file together."""

ENTRIES = 10_000
"""Files in an archive that are listed, or taken for granted in an office file."""
UNPACKED = 150 * 1024**2
"""Bytes of an office file once unpacked."""
RATIO = 200
"""How many times larger than packed an office file of more than 10 MB may be."""
ROWS = 20_000
COLUMNS = 200
