# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors

import pickle

import pytest

import tarn

PAGE = 2 << 20


def test_pages_come_and_go():
    with tarn.Range(16 * PAGE) as pages:
        assert (pages.info.nbytes, pages.info.page, pages.info.pool) == (16 * PAGE, PAGE, (0, 0))
        assert pages.ptr == pages.info.address and pages.device == tarn.Device(0)
        stream = tarn.Stream()
        pages.commit(0, 2 * PAGE, stream)
        assert pages.info.committed == 2 * PAGE
        pages.decommit(PAGE, PAGE, stream)
        assert (pages.info.committed, pages.info.decommitted) == (PAGE, PAGE)
        pages.commit(PAGE, PAGE)  # after the stream's work
        with pytest.raises(tarn.InvalidArgumentError, match="committed already"):
            pages.commit(PAGE, PAGE)
        with pytest.raises(tarn.InvalidArgumentError, match="whole pages"):
            pages.commit(0, 100)
        with pytest.raises(ValueError, match="offset"):
            pages.commit(-PAGE, PAGE)
    assert repr(pages) == "<tarn.Range, closed>"
    pages.close()


def test_the_pool_limits_and_counts():
    pool = tarn.Pool(limit=4 * PAGE)
    pages = tarn.Range(64 * PAGE, pool=pool, page=2 * PAGE, tag="cache")
    assert pages.info.page == 2 * PAGE and pages.info.pool == pool.id
    pages.commit(0, 4 * PAGE)
    assert pool.stats()["reserved_bytes.all.current"] == 4 * PAGE
    with pytest.raises(tarn.OutOfMemoryError, match="a commit of a range needs"):
        pages.commit(8 * PAGE, 2 * PAGE)
    pages.decommit(0, 4 * PAGE)
    pages.commit(8 * PAGE, 2 * PAGE)
    del pages
    pool.trim()
    assert pool.stats()["reserved_bytes.all.current"] == 0


def test_held_pages_stay():
    pages = tarn.Range(4 * PAGE)
    pages.commit(0, PAGE)
    pages.hold(0, PAGE)
    with pytest.raises(tarn.BusyError, match="held"):
        pages.decommit(0, PAGE)
    with pytest.raises(tarn.BusyError):
        pages.close()
    pages.unhold(0, PAGE)
    pages.decommit(0, PAGE)
    pages.close()


def test_a_range_is_neither_an_array_nor_copied():
    pages = tarn.Range(PAGE)
    with pytest.raises(BufferError, match="pages come and go"):
        pages.__dlpack__()
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(pages)
    pages.close()
