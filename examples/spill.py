# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

"""A cache of device memory that gives way when memory is short. Run it with TARN_DRIVER=host, or on a GPU."""

import tarn

tarn.limit(64 << 20)

cache = [tarn.alloc(10 << 20, tag="cache") for _ in range(5)]


def spill(shortage: tarn.Shortage) -> bool:
    if shortage.rejected or not cache:
        return False  # nothing can serve it, or nothing is left: the request fails
    cache.pop().close()
    return True


with tarn.Spiller(spill):
    block = tarn.alloc(30 << 20)  # has room only without two of the five

print(f"{len(cache)} blocks of 10 MiB are left beside the one of {block.nbytes >> 20} MiB")
