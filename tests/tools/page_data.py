# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""What a page of `tarn report` says of its files: the JSON at the end of its data (report_data.h). As a program: page_data.py PAGE prints it."""

import base64
import json
import re
import sys
import zlib


def description_of(page):
    packed = re.search(rb'id="data">([A-Za-z0-9+/=]*)</script>', page).group(1)
    data = zlib.decompress(base64.b64decode(packed))
    length = int.from_bytes(data[-8:], "little")
    return json.loads(data[-8 - length:-8])


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as source:
        print(json.dumps(description_of(source.read())))
