"""Small pictures as files that a page can hold: those of audits' reports and of papers' figures.

`audit.questions.reconstruction` puts reconstructed pictures into the report's JSON and page, so that each is one file.
"""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor


def png(picture: Tensor) -> str:
    """A picture of one or three channels with values from 0 to 1 as a PNG file, in base64."""
    pixels = (picture.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + bytes(line.flatten().tolist()) for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    body = b"".join(struct.pack(">I", len(p)) + k + p + struct.pack(">I", zlib.crc32(k + p)) for k, p in parts)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
