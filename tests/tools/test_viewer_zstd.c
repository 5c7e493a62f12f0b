/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page's own zstd (tools/viewer/zstd.c) gives back what zstd's library compressed, in whatever
 * way and however its bytes come; what is damaged is refused or gives something else, and touches
 * no memory that is not its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Both in one program: the names of the library's are needed for nothing here but to compress. */
#define ZSTD_createDCtx viewer_create
#define ZSTD_freeDCtx viewer_free
#define ZSTD_decompressStream viewer_decompress
#define ZSTD_isError viewer_is_error
#define ZSTD_getErrorName viewer_error_name
#include "../../tools/viewer/zstd.c" /* NOLINT(bugprone-suspicious-include): what is tested is
                                        compiled for browsers alone */

#define DATA_MOST ((size_t)700 << 10)

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

enum kind { ZEROS, NOISE, WORDS, NUMBERS, MIXED, KINDS };

static void fill(uint8_t *data, size_t size, enum kind kind)
{
    static const char *const words[] = {"alloc",  "free_completed", "segment_map",
                                        "frames", "addr",           "size",
                                        "stream", "/srv/train.py",  "\x94\x8c"};
    for (size_t at = 0; at < size;) {
        enum kind each = kind == MIXED ? (enum kind)draw(MIXED) : kind;
        size_t part = kind == MIXED ? 1 + draw(9000) : size;
        for (size_t end = part < size - at ? at + part : size; at < end;) {
            const char *word = words[draw(9)];
            uint64_t number = (uint64_t)(at << 9) + draw(4) * 4096;
            size_t length = each == WORDS ? strlen(word) : each == NUMBERS ? 8 : 1;
            length = length < end - at ? length : end - at;
            if (each == WORDS)
                memcpy(data + at, word, length);
            else if (each == NUMBERS)
                memcpy(data + at, &number, length);
            else
                data[at] = each == NOISE ? (uint8_t)draw(256) : 0;
            at += length;
        }
    }
}

/* Gives how many bytes came out, SIZE_MAX for an error. `ended`: whether a frame's end was the last
 * that came. */
static size_t decompress(const uint8_t *packed, size_t size, uint8_t *to, size_t room, size_t step,
                         bool *ended)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_outBuffer out = {to, 0, 0};
    size_t result = 1;
    for (size_t at = 0; at < size;) {
        size_t part = step < size - at ? step : size - at;
        uint8_t *copy = malloc(part ? part : 1); /* what lies behind it is not ours */
        memcpy(copy, packed + at, part);
        ZSTD_inBuffer in = {copy, part, 0};
        do {
            out.size = out.pos + 1 + draw(200000);
            out.size = out.size < room ? out.size : room;
            result = ZSTD_decompressStream(context, &out, &in);
        } while (!ZSTD_isError(result) && out.pos < room &&
                 (in.pos < in.size || out.pos == out.size));
        free(copy);
        if (ZSTD_isError(result) || out.pos == room)
            break;
        at += part;
    }
    ZSTD_freeDCtx(context);
    *ended = result == 0;
    return ZSTD_isError(result) ? SIZE_MAX : out.pos;
}

static size_t compress(const uint8_t *data, size_t size, uint8_t *packed, size_t room, int level,
                       int window, bool checksum, bool sized)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_inBuffer in = {data, size, 0};
    ZSTD_outBuffer out = {packed, room, 0};
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
    if (window)
        ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window);
    if (sized)
        ZSTD_CCtx_setPledgedSrcSize(context, size);
    size_t left;
    do {
        in.size = in.pos + 1 + (sized ? size : draw(300000));
        in.size = in.size < size ? in.size : size;
        left = ZSTD_compressStream2(context, &out, &in,
                                    in.size < size ? draw(2) ? ZSTD_e_continue : ZSTD_e_flush
                                                   : ZSTD_e_end);
        assert_true(left <= room);
    } while (in.pos < size || left);
    ZSTD_freeCCtx(context);
    return out.pos;
}

static void everything_comes_back(void **state)
{
    (void)state;
    static const int levels[] = {-5, 1, 3, 9, 19};
    static const size_t sizes[] = {0, 1, 5, 300, 70000, 131072, 131073, DATA_MOST};
    size_t room = ZSTD_compressBound(DATA_MOST) * 2;
    uint8_t *data = malloc(DATA_MOST), *packed = malloc(room), *got = malloc(DATA_MOST + 2);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
                bool ended;
                fill(data, sizes[k], (enum kind)kind);
                size_t size = compress(data, sizes[k], packed, room, levels[l],
                                       draw(2) ? 10 + (int)draw(10) : 0, draw(2), draw(2));
                assert_int_equal(decompress(packed, size, got, DATA_MOST + 2,
                                            1 + draw(k < 4 ? 7 : 90000), &ended),
                                 sizes[k]);
                assert_true(ended);
                assert_memory_equal(got, data, sizes[k]);
            }
    free(data);
    free(packed);
    free(got);
}

/* Two frames with something to skip between them; and the first alone, cut. */
static void frames_follow(void **state)
{
    (void)state;
    static const uint8_t skipped[] = {0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'};
    uint8_t data[5000], packed[20000], got[12000];
    bool ended;
    fill(data, sizeof data, WORDS);
    size_t one = compress(data, sizeof data, packed, sizeof packed, 3, 0, true, true), all = one;
    memcpy(packed + all, skipped, sizeof skipped);
    all += sizeof skipped;
    all += compress(data, sizeof data, packed + all, sizeof packed - all, 19, 0, false, false);
    assert_int_equal(decompress(packed, all, got, sizeof got, 11, &ended), 2 * sizeof data);
    assert_true(ended);
    assert_memory_equal(got, data, sizeof data);
    assert_memory_equal(got + sizeof data, data, sizeof data);
    for (size_t cut = 0; cut < one; cut++) {
        size_t came = decompress(packed, cut, got, sizeof got, 4096, &ended);
        assert_true(came <= sizeof data && (!ended || cut == 0));
    }
}

static void damage_is_contained(void **state)
{
    (void)state;
    size_t room = ZSTD_compressBound(DATA_MOST);
    uint8_t *data = malloc(DATA_MOST), *packed = malloc(room), *got = malloc(DATA_MOST);
    size_t refused = 0;
    for (int round = 0; round < 600; round++) {
        size_t size = 1 + draw(40000);
        bool ended;
        fill(data, size, (enum kind)(round % KINDS));
        size_t length = compress(data, size, packed, room, 1 + (int)draw(12), 0, false, draw(2));
        for (uint32_t i = draw(4) + 1; i > 0; i--)
            packed[draw((uint32_t)(draw(2)        ? length
                                   : length < 200 ? length
                                                  : 200))] = (uint8_t)draw(256);
        refused += decompress(packed, length, got, DATA_MOST, length, &ended) == SIZE_MAX;
    }
    assert_true(refused > 100);
    free(data);
    free(packed);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(frames_follow),
        cmocka_unit_test(damage_is_contained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
