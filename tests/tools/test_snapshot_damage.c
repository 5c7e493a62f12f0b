/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The reader of snapshots fed what is cut short, corrupted or made to take all memory.
 * TARN_TEST_DATA as for test_snapshot.c. */
#include "snapshot_test.h"

static void every_prefix(void **state)
{
    (void)state;
    struct snapshot_error error;
    struct bytes bytes = load(test_data("small-4.pickle"));
    assert_true(read_bytes(bytes.data, bytes.size, &error));
    for (size_t cut = 0; cut < bytes.size; cut++)
        if (read_bytes(bytes.data, cut, &error))
            fail_msg("the first %zu bytes of %zu were read", cut, bytes.size);
    bytes.data[bytes.size] = 0;
    assert_false(read_bytes(bytes.data, bytes.size + 1, &error));
    free(bytes.data);
}

static uint64_t random_state;

/* xorshift64*, Vigna 2016. */
static uint64_t random_next(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717);
}

static size_t random_below(size_t limit)
{
    return (size_t)(random_next() % limit);
}

/* Damages a copy, which has room for 64 bytes more, and gives its new size. */
static size_t damage(unsigned char *data, size_t size)
{
    size_t at = random_below(size), other = random_below(size), length = 1 + random_below(32);
    unsigned char swap[32];
    switch (random_below(9)) {
    case 0: /* one bit */
        data[at] ^= (unsigned char)(1u << random_below(8));
        return size;
    case 1: /* one byte */
        data[at] = (unsigned char)random_next();
        return size;
    case 2: /* several bytes */
        for (size_t i = 0; i < length; i++)
            data[random_below(size)] = (unsigned char)random_next();
        return size;
    case 3: /* a length or a number, to an extreme */
        for (size_t i = 0; i < 4 && at + i < size; i++)
            data[at + i] = (unsigned char)(other % 2 ? 0xff : 0);
        return size;
    case 4: /* bytes too many */
        memmove(data + at + length, data + at, size - at);
        for (size_t i = 0; i < length; i++)
            data[at + i] = (unsigned char)random_next();
        return size + length;
    case 5: /* bytes missing */
        length = length < size - at ? length : size - at;
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 6: /* two stretches change places */
        if (at + 32 > size || other + 32 > size || (at < other + 32 && other < at + 32))
            return size - 1;
        memcpy(swap, data + at, length);
        memcpy(data + at, data + other, length);
        memcpy(data + other, swap, length);
        return size;
    case 7: /* a small number: the byte behind a BININT1 */
        for (size_t tries = 0; tries < 1000 && (data[at] != 'K' || at + 1 == size); tries++)
            at = random_below(size);
        data[at + 1 < size ? at + 1 : at] = (unsigned char)random_next();
        return size;
    default: /* one digit or letter to another, as a flip in a value or a text */
        for (size_t tries = 0; tries < 1000 && (data[at] < '0' || data[at] > 'z'); tries++)
            at = random_below(size);
        data[at] = (unsigned char)('0' + random_below('z' - '0' + 1));
        return size;
    }
}

/* A damaged file is refused, or read, within 5 s of processor time: that a sanitizer, or counting,
 * multiplies. The thread sanitizer has nothing to find in a reader that has one thread, so it is
 * given a part. */
#ifdef __SANITIZE_THREAD__
#define COPIES 500
#define MOST_SECONDS 100
#elif defined(__SANITIZE_ADDRESS__) || defined(TARN_COVERAGE)
#define COPIES 10000
#define MOST_SECONDS 50
#else
#define COPIES 10000
#define MOST_SECONDS 5
#endif

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void ten_thousand_damaged(void **state)
{
    (void)state;
    size_t parsed = 0;
    double slowest = 0;
    struct bytes bytes = load(test_data("small-4.pickle"));
    unsigned char *copy = malloc(bytes.size + 64);
    random_state = 20260101;
    for (size_t i = 0; i < COPIES; i++) {
        struct snapshot_error error;
        memcpy(copy, bytes.data, bytes.size);
        size_t size = damage(copy, bytes.size);
        double start = seconds();
        parsed += read_bytes(copy, size, &error);
        double taken = seconds() - start;
        slowest = taken > slowest ? taken : slowest;
    }
    print_message("parsed %zu of %d, slowest %.1f ms\n", parsed, COPIES, slowest * 1e3);
    assert_true(parsed >= COPIES / 5 && parsed < COPIES);
    assert_true(slowest < 1);
    free(copy);
    free(bytes.data);
}

/* A megabyte of one pattern between a head and a tail must end within 5 s and 1 GiB, whatever comes
 * out. */
static void expect_bounded(const char *name, const char *head, size_t head_size,
                           const char *pattern, size_t pattern_size)
{
    size_t size = (size_t)1 << 20;
    unsigned char *data = malloc(size);
    struct snapshot_error error = {{0}};
    memcpy(data, head, head_size);
    for (size_t i = head_size; i < size; i++)
        data[i] = (unsigned char)pattern[(i - head_size) % pattern_size];
    double start = seconds();
    assert_false(read_bytes(data, size, &error));
    double taken = seconds() - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    print_message("%s: %.2f s, peak so far %ld MiB: %s\n", name, taken, usage.ru_maxrss >> 10,
                  error.text);
    assert_true(taken < MOST_SECONDS);
#if !defined(__SANITIZE_ADDRESS__)
    assert_true(usage.ru_maxrss < 1 << 20);
#endif
    free(data);
}

#define BOMB(name, head, pattern) \
    expect_bounded(name, head, sizeof(head) - 1, pattern, sizeof(pattern) - 1)

static void bombs(void **state)
{
    (void)state;
    BOMB("marks", "\x80\x04", "(");
    BOMB("lists", "\x80\x04", "]");
    BOMB("dicts", "\x80\x04", "}");
    BOMB("memo", "\x80\x04N", "\x94");
    BOMB("memo of lists", "\x80\x04", "]\x94");
    BOMB("duplicates", "\x80\x04N", "2");
    BOMB("lists in lists", "\x80\x04", "]]a");
    BOMB("doubling", "\x80\x04]q\x00",
         "](h\x00h\x00"
         "eq\x00");
    BOMB("big memo index", "\x80\x04N", "r\xff\xff\x0f\x00");
    BOMB("dicts with a word", "\x80\x04", "}\x8c\x04sizeK\x01s");
    BOMB("dicts with a word, from the memo", "\x80\x04\x8c\x04size\x94N\x94", "}h\x00h\x01s");
    BOMB("pairs", "\x80\x04", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x32\x86");
    BOMB("wide integers", "\x80\x04", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
    BOMB("lines", "\x80\x04S", "a");
    BOMB("texts", "\x80\x04",
         "\x8c\x03"
         "abc");
    BOMB("stacks",
         "\x80\x04}\x8c\x06"
         "frames\x94]\x94}\x94\x8c\x08"
         "filename\x94\x8c\x01x\x94s"
         "a",
         "}h\x00](h\x02h\x02h\x02h\x02h\x02h\x02h\x02h\x02"
         "es0");
}

/* One list of events for very many devices, or in very many lists: more events than the file has
 * bytes. */
static void sharing_is_counted(void **state)
{
    (void)state;
    struct writer writer = {.size = 0};
    struct snapshot_error error = {{0}};
    put(&writer, "\x80\x02}(", 4);
    write_literal(&writer, "'segments': [], 'device_traces'");
    put(&writer, "](](", 4);
    write_literal(&writer, "{'action': 'alloc', 'addr': 1, 'size': 10, 'stream': 3}");
    for (size_t i = 0; i < 30000; i++)
        put(&writer, "2", 1);
    put(&writer, "e", 1);
    for (size_t i = 0; i < 4000; i++)
        put(&writer, "2", 1);
    put(&writer, "eu.", 3);
    assert_false(read_bytes(writer.data, writer.size, &error));
    assert_non_null(strstr(
        error.text, "device_traces[1] repeats parts of the file more often than its size allows"));

    writer.size = 0;
    put(&writer, "\x80\x02}(", 4);
    write_literal(&writer, "'segments'");
    put(&writer, "](", 2);
    write_literal(&writer, "{'device': 0, 'address': 0, 'total_size': 1024, 'stream': 0, 'blocks'");
    put(&writer, "](", 2);
    write_literal(&writer, "{'size': 0, 'state': 'inactive'}");
    for (size_t i = 0; i < 30000; i++)
        put(&writer, "2", 1);
    put(&writer, "eu", 2);
    for (size_t i = 0; i < 30000; i++)
        put(&writer, "2", 1);
    put(&writer, "eu.", 3);
    assert_false(read_bytes(writer.data, writer.size, &error));
    assert_non_null(
        strstr(error.text, "repeats parts of the file more often than its size allows"));
}

/* A megabyte of zstd that wants to become tens of gigabytes. */
static void zstd_bombs(void **state)
{
    (void)state;
    static const char patterns[] = {'(', ']', 'N', '0', 'a', 0};
    size_t chunk = (size_t)4 << 20, limit = (size_t)1 << 20;
    unsigned char *plain = malloc(chunk), *bomb = malloc(limit);
    for (size_t p = 0; p < sizeof patterns; p++) {
        struct snapshot_error error = {{0}};
        memset(plain, patterns[p], chunk);
        if (patterns[p] == '0') /* N0N0N0: nothing accumulates, only time passes */
            for (size_t i = 0; i < chunk; i += 2)
                plain[i] = 'N';
        memcpy(plain, "\x80\x04", 2);
        size_t head = ZSTD_compress(bomb, limit, plain, chunk, 3);
        memcpy(plain, plain + 2, 2);
        size_t tail = ZSTD_compress(bomb + head, limit - head, plain, chunk, 3);
        assert_false(ZSTD_isError(head) || ZSTD_isError(tail));
        size_t size = head + tail;
        for (; size + tail <= limit; size += tail)
            memcpy(bomb + size, bomb + head, tail);
        double start = seconds();
        assert_false(read_bytes(bomb, size, &error));
        double taken = seconds() - start;
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        print_message("zstd of 0x%02x: %.2f s, peak so far %ld MiB: %s\n", (unsigned)patterns[p],
                      taken, usage.ru_maxrss >> 10, error.text);
#if !defined(__SANITIZE_ADDRESS__)
        assert_true(taken < MOST_SECONDS);
        assert_true(usage.ru_maxrss < 1 << 20);
#endif
    }
    free(plain);
    free(bomb);
}

/* What zstd cannot read, and what helps. */
static void zstd_faults(void **state)
{
    (void)state;
    static const unsigned char with_dictionary[] = {0x28, 0xb5, 0x2f, 0xfd, 0x21, 0x07, 0x05, 0x29,
                                                    0x00, 0x00, 'a',  'b',  'c',  'd',  'e'},
                               long_window[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8,
                                                0x29, 0x00, 0x00, 'a',  'b',  'c'},
                               reserved_block[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x05,
                                                   0x2f, 0x00, 0x00, 'a',  'b',  'c'};
    static const struct {
        const unsigned char *data;
        size_t size;
        const char *error;
    } bad[] = {
        {with_dictionary, sizeof with_dictionary,
         "byte 0: zstd cannot decompress what follows: Dictionary mismatch; it was compressed with "
         "a dictionary: decompress it first, with zstd -d -D DICTIONARY"},
        {long_window, sizeof long_window,
         "byte 0: zstd cannot decompress what follows: Frame requires too much memory for "
         "decoding; it was compressed with a long window: decompress it first, with zstd -d "
         "--long=31"},
        {reserved_block, sizeof reserved_block,
         "byte 0: zstd cannot decompress what follows: Data corruption detected; the file is "
         "damaged: fetch it again"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct snapshot_error error = {{0}};
        assert_false(read_bytes(bad[i].data, bad[i].size, &error));
        assert_string_equal(error.text, bad[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix), cmocka_unit_test(ten_thousand_damaged),
        cmocka_unit_test(bombs),        cmocka_unit_test(sharing_is_counted),
        cmocka_unit_test(zstd_bombs),   cmocka_unit_test(zstd_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
