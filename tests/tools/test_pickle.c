/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The pickle machine, opcode by opcode, on pickles written by hand. Owns nothing that others
 * use. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "input/pickle/pickle.h"

static const char *const words[] = {"a", "b", "segments"};

/* A pickle read to its end; `data` is what follows PROTO. */
struct reading {
    struct pickle_input input;
    struct pickle pickle;
    struct pickle_place top;
    char bytes[4096];
};

static bool reduce_none(void *context, struct pickle *pickle, pickle_value dict, uint64_t *record)
{
    (void)context, (void)pickle, (void)dict, (void)record;
    return false;
}

static uint64_t records;

static bool reduce_all(void *context, struct pickle *pickle, pickle_value dict, uint64_t *record)
{
    (void)context, (void)pickle, (void)dict;
    *record = records++;
    return true;
}

static bool read_bytes(struct reading *reading, const char *data, size_t size, pickle_reduce reduce)
{
    assert_true(size + 2 <= sizeof reading->bytes);
    memcpy(reading->bytes, "\x80\x04", 2);
    memcpy(reading->bytes + 2, data, size);
    assert_true(pickle_input_attach(&reading->input, reading->bytes, size + 2));
    return pickle_read(&reading->pickle, &reading->input, words, 3, reduce, NULL, &reading->top);
}

static void finish(struct reading *reading)
{
    pickle_finish(&reading->pickle);
    pickle_input_finish(&reading->input);
}

#define BYTES(literal) literal, sizeof(literal) - 1

static void expect_error(const char *data, size_t size, const char *error)
{
    struct reading reading;
    assert_false(read_bytes(&reading, data, size, reduce_none));
    assert_string_equal(reading.pickle.error, error);
    finish(&reading);
}

static void expect_kind(const char *data, size_t size, enum pickle_kind kind)
{
    struct reading reading;
    if (!read_bytes(&reading, data, size, reduce_none))
        fail_msg("%s", reading.pickle.error);
    assert_int_equal(pickle_kind(reading.top.value), kind);
    finish(&reading);
}

static void expect_signed(const char *data, size_t size, int64_t number)
{
    struct reading reading;
    int64_t got = 0;
    if (!read_bytes(&reading, data, size, reduce_none))
        fail_msg("%s", reading.pickle.error);
    assert_null(pickle_get_signed(&reading.pickle, reading.top.value, &got));
    assert_true(got == number);
    finish(&reading);
}

static void expect_unsigned(const char *data, size_t size, uint64_t number, const char *wrong)
{
    struct reading reading;
    uint64_t got = 0;
    if (!read_bytes(&reading, data, size, reduce_none))
        fail_msg("%s", reading.pickle.error);
    const char *error = pickle_get_unsigned(&reading.pickle, reading.top.value, &got);
    if (wrong)
        assert_string_equal(error, wrong);
    else
        assert_null(error);
    assert_true(wrong || got == number);
    finish(&reading);
}

static void integers(void **state)
{
    (void)state;
    expect_signed(BYTES("K\xff."), 255);
    expect_signed(BYTES("M\x01\x80."), 0x8001);
    expect_signed(BYTES("J\xff\xff\xff\xff."), -1);
    expect_signed(BYTES("J\x00\x00\x00\x80."), INT32_MIN);
    expect_signed(BYTES("J\xff\xff\xff\x7f."), INT32_MAX);
    expect_signed(BYTES("I-12\n."), -12);
    expect_signed(BYTES("I+12\n."), 12);
    expect_signed(BYTES("I-0\n."), 0);
    expect_signed(BYTES("L123L\n."), 123);
    expect_signed(BYTES("L-9223372036854775808L\n."), INT64_MIN);
    expect_signed(BYTES("\x8a\x00."), 0);
    expect_signed(BYTES("\x8a\x01\xff."), -1);
    expect_signed(BYTES("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), INT64_MIN);
    expect_signed(BYTES("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), INT64_MAX);
    /* Both sides of what fits in a value, 56 bits. */
    expect_signed(BYTES("\x8a\x07\xff\xff\xff\xff\xff\xff\x7f."), (INT64_C(1) << 55) - 1);
    expect_signed(BYTES("\x8a\x08\x00\x00\x00\x00\x00\x00\x80\x00."), INT64_C(1) << 55);
    expect_signed(BYTES("\x8a\x07\x00\x00\x00\x00\x00\x00\x80."), -(INT64_C(1) << 55));
    expect_signed(BYTES("\x8a\x08\xff\xff\xff\xff\xff\xff\x7f\xff."), -(INT64_C(1) << 55) - 1);
    expect_signed(BYTES("\x8b\x03\x00\x00\x00\x01\x02\x03."), 0x030201);

    expect_unsigned(BYTES("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."), UINT64_MAX, NULL);
    expect_unsigned(BYTES("L18446744073709551615\n."), UINT64_MAX, NULL);
    expect_unsigned(BYTES("L18446744073709551616\n."), 0, "does not fit in 64 bits");
    expect_unsigned(BYTES("L-9223372036854775809\n."), 0, "does not fit in 64 bits");
    expect_unsigned(BYTES("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), 0,
                    "does not fit in 64 bits");
    expect_unsigned(BYTES("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff."), 0,
                    "does not fit in 64 bits");
    expect_unsigned(BYTES("\x8a\x0a\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00."), 0,
                    "does not fit in 64 bits");
    expect_unsigned(BYTES("\x8a\x01\xff."), 0, "is negative");
    expect_unsigned(BYTES("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), 0, "is negative");
    expect_unsigned(BYTES("N."), 0, "is None, not an integer");
    expect_unsigned(BYTES("\x88."), 0, "is a bool, not an integer");
    expect_unsigned(BYTES("]."), 0, "is a list, not an integer");
}

static void scalars(void **state)
{
    (void)state;
    expect_kind(BYTES("N."), PICKLE_NONE);
    expect_kind(BYTES("\x88."), PICKLE_BOOL);
    expect_kind(BYTES("I01\n."), PICKLE_BOOL);
    expect_kind(BYTES("G\x3f\xf0\x00\x00\x00\x00\x00\x00."), PICKLE_FLOAT);
    expect_kind(BYTES("F-1.5e3\n."), PICKLE_FLOAT);
    expect_kind(BYTES("Finf\n."), PICKLE_FLOAT);
    expect_kind(BYTES("\x8c\x01z."), PICKLE_TEXT);
    expect_kind(BYTES("\x8c\x00."), PICKLE_TEXT);
    expect_kind(BYTES("\x8c\x01"
                      "a."),
                PICKLE_WORD);
    expect_kind(BYTES("\x8c\x03"
                      "a\0b."),
                PICKLE_TEXT);
    expect_kind(BYTES("X\x08\x00\x00\x00segments."), PICKLE_WORD);
    expect_kind(BYTES("\x8d\x08\x00\x00\x00\x00\x00\x00\x00segments."), PICKLE_WORD);
    expect_kind(BYTES("Vsegments\n."), PICKLE_WORD);
    expect_kind(BYTES("S'segments'\n."), PICKLE_WORD);
    expect_kind(BYTES("U\x08segments."), PICKLE_WORD);
    expect_kind(BYTES("T\x08\x00\x00\x00segments."), PICKLE_WORD);
    expect_kind(BYTES("C\x02zz."), PICKLE_BYTES);
    expect_kind(BYTES("B\x02\x00\x00\x00zz."), PICKLE_BYTES);
    expect_kind(BYTES("\x8e\x02\x00\x00\x00\x00\x00\x00\x00zz."), PICKLE_BYTES);
    expect_kind(BYTES("\x96\x02\x00\x00\x00\x00\x00\x00\x00zz."), PICKLE_BYTES);
    expect_kind(BYTES("\x95\x02\x00\x00\x00\x00\x00\x00\x00N."), PICKLE_NONE);
}

static void tuples(void **state)
{
    (void)state;
    struct reading reading;
    uint64_t pair[2];
    expect_kind(BYTES(")."), PICKLE_TUPLE);
    expect_kind(BYTES("N\x85."), PICKLE_TUPLE);
    expect_kind(BYTES("NNN\x87."), PICKLE_TUPLE);
    expect_kind(BYTES("(NNNNt."), PICKLE_TUPLE);

    assert_true(read_bytes(&reading, BYTES("K\x03M\x00\x01\x86."), NULL));
    assert_null(pickle_get_pair(&reading.pickle, reading.top.value, pair));
    assert_int_equal(pair[0], 3);
    assert_int_equal(pair[1], 256);
    finish(&reading);

    assert_true(
        read_bytes(&reading, BYTES("(K\x03\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00t."), NULL));
    assert_null(pickle_get_pair(&reading.pickle, reading.top.value, pair));
    assert_int_equal(pair[0], 3);
    assert_true(pair[1] == UINT64_MAX);
    finish(&reading);

    assert_true(read_bytes(&reading, BYTES("K\x03J\xff\xff\xff\xff\x86."), NULL));
    assert_string_equal(pickle_get_pair(&reading.pickle, reading.top.value, pair),
                        "has a negative part");
    finish(&reading);

    assert_true(read_bytes(&reading, BYTES("K\x03N\x86."), NULL));
    assert_string_equal(pickle_get_pair(&reading.pickle, reading.top.value, pair),
                        "is not a pair of two integers of 64 bits");
    finish(&reading);
}

/* The number under key "a" of the dict on top, whichever opcodes made it. */
static void expect_a(const char *data, size_t size, uint64_t number)
{
    struct reading reading;
    size_t count;
    uint64_t got = 0;
    if (!read_bytes(&reading, data, size, reduce_none))
        fail_msg("%s", reading.pickle.error);
    const struct pickle_place *entries = pickle_dict(&reading.pickle, reading.top.value, &count);
    assert_int_equal(count, 1);
    assert_int_equal(entries[0].word, 0);
    assert_null(pickle_get_unsigned(&reading.pickle, entries[0].value, &got));
    assert_int_equal(got, number);
    finish(&reading);
}

static void dicts(void **state)
{
    (void)state;
    expect_a(BYTES("}\x8c\x01"
                   "aK\x07s."),
             7);
    expect_a(BYTES("}(\x8c\x01"
                   "aK\x07\x8c\x01zK\x08u."),
             7);
    expect_a(BYTES("(\x8c\x01"
                   "aK\x07"
                   "d."),
             7);
    expect_a(BYTES("}\x8c\x01"
                   "aK\x07s\x8c\x01"
                   "aK\x09s."),
             9); /* the last one counts */
    expect_a(BYTES("}K\x05K\x06s)K\x06sNK\x06s\x8c\x01"
                   "aK\x07s."),
             7);
    expect_kind(BYTES("}."), PICKLE_DICT);
    expect_error(BYTES("}]K\x01s."), "byte 6: SETITEM uses a list as a key");
    expect_error(BYTES("}(K\x01u."), "byte 6: SETITEMS finds a key without a value");
    expect_error(BYTES("]K\x01K\x01s."), "byte 7: SETITEM stores into a list");
    expect_error(BYTES("}K\x01"
                       "a."),
                 "byte 5: APPEND stores into a dict");
}

static void expect_list(const char *data, size_t size, pickle_reduce reduce, size_t kept,
                        uint64_t dropped)
{
    struct reading reading;
    size_t count;
    uint64_t other;
    if (!read_bytes(&reading, data, size, reduce))
        fail_msg("%s", reading.pickle.error);
    assert_int_equal(pickle_kind(reading.top.value), PICKLE_LIST);
    pickle_list(&reading.pickle, reading.top.value, &count, &other);
    assert_int_equal(count, kept);
    assert_int_equal(other, dropped);
    finish(&reading);
}

static void lists(void **state)
{
    (void)state;
    expect_list(BYTES("]."), NULL, 0, 0);
    expect_list(BYTES("]Na."), NULL, 0, 1);
    expect_list(BYTES("](NNNe."), NULL, 0, 3);
    expect_list(BYTES("(NNNl."), NULL, 0, 3);
    expect_list(BYTES("](]]]e."), NULL, 3, 0);
    expect_list(BYTES("](}}}e."), NULL, 0, 3); /* they kept nothing */
    expect_list(BYTES("](}\x8c\x01"
                      "aNs}e."),
                NULL, 1, 1);
}

static void records_replace_dicts(void **state)
{
    (void)state;
    struct reading reading;
    size_t count;
    uint64_t dropped;
    records = 40;
    /* Two dicts, the second known to the memo and stored again. */
    assert_true(read_bytes(&reading,
                           BYTES("](}\x8c\x01"
                                 "aNs}\x94\x8c\x01"
                                 "aNse(h\x00h\x00"
                                 "e."),
                           reduce_all));
    const pickle_value *items = pickle_list(&reading.pickle, reading.top.value, &count, &dropped);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pickle_kind(items[i]), PICKLE_RECORD);
        assert_int_equal(pickle_number(items[i]), i ? 41 : 40);
    }
    finish(&reading);

    /* A dict that the stack knows twice stays alive as long as both. */
    assert_true(read_bytes(&reading,
                           BYTES("]}\x8c\x01"
                                 "aNs2\x94q\x05"
                                 "0"
                                 "ah\x00"
                                 "ah\x05"
                                 "a."),
                           reduce_all));
    pickle_list(&reading.pickle, reading.top.value, &count, &dropped);
    assert_int_equal(count, 3);
    finish(&reading);
}

/* Records that follow each other take no memory an item, and are items all the same. */
static void records_in_a_row(void **state)
{
    (void)state;
    struct reading reading;
    size_t count = 0;
    uint64_t dropped = 1;
    pickle_value first;
#define DICT    \
    "}\x8c\x01" \
    "aNs"
    records = 7;
    assert_true(read_bytes(&reading, BYTES("](" DICT DICT DICT "e" DICT "a."), reduce_all));
    assert_true(pickle_list_run(&reading.pickle, reading.top.value, &first, &count));
    assert_true(count == 4 && pickle_kind(first) == PICKLE_RECORD && pickle_number(first) == 7);
    const pickle_value *items = pickle_list(&reading.pickle, reading.top.value, &count, &dropped);
    assert_true(count == 4 && dropped == 0);
    for (size_t i = 0; i < 4; i++)
        assert_true(pickle_kind(items[i]) == PICKLE_RECORD && pickle_number(items[i]) == 7 + i);
    finish(&reading);

    /* With a number among them, and one that is not kept, they are none. */
    records = 7;
    assert_true(
        read_bytes(&reading, BYTES("](" DICT DICT DICT "K\x05" DICT DICT "Ne."), reduce_all));
    assert_false(pickle_list_run(&reading.pickle, reading.top.value, &first, &count));
    items = pickle_list(&reading.pickle, reading.top.value, &count, &dropped);
    assert_true(count == 6 && dropped == 1);
    for (size_t i = 0; i < 6; i++)
        assert_true(i == 3 ? pickle_kind(items[i]) == PICKLE_INT
                           : pickle_number(items[i]) == 7 + i - (i > 3));
    finish(&reading);

    /* Records of other numbers neither. */
    records = 7;
    assert_true(read_bytes(&reading, BYTES("](" DICT "\x94h\x00" DICT "e."), reduce_all));
    assert_false(pickle_list_run(&reading.pickle, reading.top.value, &first, &count));
    items = pickle_list(&reading.pickle, reading.top.value, &count, &dropped);
    assert_true(count == 3 && pickle_number(items[0]) == 7 && pickle_number(items[1]) == 7 &&
                pickle_number(items[2]) == 8);
    finish(&reading);
    assert_true(read_bytes(&reading, BYTES("]."), reduce_all));
    assert_false(pickle_list_run(&reading.pickle, reading.top.value, &first, &count));
    finish(&reading);
#undef DICT
}

static void memo(void **state)
{
    (void)state;
    expect_signed(BYTES("K\x07\x94"
                        "0h\x00."),
                  7);
    expect_signed(BYTES("K\x07q\x05"
                        "0h\x05."),
                  7);
    expect_signed(BYTES("K\x07r\x05\x00\x00\x00"
                        "0j\x05\x00\x00\x00."),
                  7);
    expect_signed(BYTES("K\x07p5\n0g5\n."), 7);
    expect_signed(BYTES("K\x07\x94K\x08q\x00"
                        "00h\x00."),
                  8);
    expect_error(BYTES("h\x00."), "byte 2: BINGET of memo entry 0, which was never written");
    expect_error(BYTES("Nq\x05h\x03."), "byte 5: BINGET of memo entry 3, which was never written");
    expect_error(BYTES("Nr\xff\xff\xff\xff."),
                 "byte 3: LONG_BINPUT of memo entry 4294967295 after 0 entries");
    expect_error(BYTES("Np99999999999999999999\n."),
                 "byte 3: PUT is not the number of a memo entry");
    expect_error(BYTES("Np-1\n."), "byte 3: PUT is not the number of a memo entry");
    expect_error(BYTES("\x94."), "byte 2: MEMOIZE finds too few values on the stack");
}

static void stack(void **state)
{
    (void)state;
    expect_signed(BYTES("K\x07N0."), 7);
    expect_signed(BYTES("K\x07(NNN1."), 7);
    expect_signed(BYTES("K\x07(0."), 7); /* POP takes a mark */
    expect_signed(BYTES("K\x07"
                        "20."),
                  7);
    expect_error(BYTES("0."), "byte 2: POP finds too few values on the stack");
    expect_error(BYTES("2."), "byte 2: DUP finds too few values on the stack");
    expect_error(BYTES("1."), "byte 2: POP_MARK finds no mark on the stack");
    expect_error(BYTES("e."), "byte 2: APPENDS finds no mark on the stack");
    expect_error(BYTES("(e."), "byte 3: APPENDS finds too few values on the stack");
    expect_error(BYTES("](a."), "byte 4: APPEND finds too few values on the stack");
    expect_error(BYTES("]("
                       "Na."),
                 "byte 5: APPEND finds too few values on the stack");
    expect_error(BYTES("N\x86."), "byte 3: TUPLE2 finds too few values on the stack");
    expect_error(BYTES("t."), "byte 2: TUPLE finds no mark on the stack");
    expect_error(BYTES("."), "byte 2: STOP with 0 values and 0 marks on the stack, not one value");
    expect_error(BYTES("N(."),
                 "byte 4: STOP with 1 values and 1 marks on the stack, not one value");
    expect_error(BYTES("N.N"), "byte 4: more data follows the pickle's STOP");
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        char opcode;
        const char *name;
    } code[] = {{'c', "GLOBAL"},    {'\x93', "STACK_GLOBAL"},
                {'R', "REDUCE"},    {'b', "BUILD"},
                {'i', "INST"},      {'o', "OBJ"},
                {'\x81', "NEWOBJ"}, {'\x92', "NEWOBJ_EX"},
                {'\x82', "EXT1"},   {'\x83', "EXT2"},
                {'\x84', "EXT4"},   {'P', "PERSID"},
                {'Q', "BINPERSID"}};
    for (size_t i = 0; i < sizeof code / sizeof code[0]; i++) {
        char data[] = {'N', code[i].opcode, '.'}, error[128];
        snprintf(error, sizeof error,
                 "byte 3: opcode %s would run code; a memory snapshot has none", code[i].name);
        expect_error(data, sizeof data, error);
    }
    expect_error(BYTES("\x8f."),
                 "byte 2: opcode EMPTY_SET makes a set; a memory snapshot has none");
    expect_error(BYTES("\x97."), "byte 2: opcode NEXT_BUFFER needs a buffer from outside the file; "
                                 "a memory snapshot has none");
    expect_error(BYTES("\xff."), "byte 2: 0xff is not a pickle opcode");
    expect_error(BYTES("\0."), "byte 2: 0x00 is not a pickle opcode");
    expect_error(BYTES("\x80\x06."), "byte 2: a pickle of protocol 6; 2 to 5 are read");
    expect_error(BYTES("\x80\x01."), "byte 2: a pickle of protocol 1; 2 to 5 are read");
}

static void lengths(void **state)
{
    (void)state;
    expect_error(BYTES("X\xff\xff\xff\xff"
                       "a."),
                 "byte 2: BINUNICODE of 4294967295 bytes, where only 2 follow");
    expect_error(BYTES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
                 "byte 2: BINUNICODE8 of 18446744073709551615 bytes, where only 1 follow");
    expect_error(BYTES("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."),
                 "byte 2: BINBYTES8 of 18446744073709551615 bytes, where only 1 follow");
    expect_error(BYTES("\x95\x09\x00\x00\x00\x00\x00\x00\x00N."),
                 "byte 2: FRAME of 9 bytes, where only 2 follow");
    expect_error(BYTES("\x8b\xff\xff\xff\xff."), "byte 2: LONG4 of a negative length");
    expect_error(BYTES("T\xff\xff\xff\xff."), "byte 2: BINSTRING of a negative length");
    expect_error(BYTES("\x8a\x05."), "byte 2: LONG1 of 5 bytes, where only 1 follow");
    expect_error(BYTES("K"), "byte 2: the data ends, at byte 3, inside BININT1");
    expect_error(BYTES("I12"), "byte 2: the data ends, at byte 5, inside INT");
    expect_error(BYTES("N"),
                 "byte 3: the data ends, at byte 3, inside the pickle, before its STOP");
    expect_error(BYTES("I1x\n."), "byte 2: INT is not a decimal number");
    expect_error(BYTES("I\n."), "byte 2: INT is not a decimal number");
    expect_error(BYTES("F1,5\n."), "byte 2: FLOAT is not a decimal number");
    expect_error(BYTES("Sabc\n."), "byte 2: STRING without quotes");
}

static void cycles(void **state)
{
    (void)state;
    expect_error(BYTES("]\x94h\x00"
                       "a."),
                 "byte 6: APPEND stores a list into itself: the data has a cycle");
    expect_error(BYTES("]2a."), "byte 4: APPEND stores a list into itself: the data has a cycle");
    expect_error(
        BYTES("]\x94]h\x00"
              "aa."),
        "byte 8: APPEND changes a list that is already part of another: the data has a cycle");
    expect_error(BYTES("}\x94\x8c\x01"
                       "ah\x00s."),
                 "byte 9: SETITEM stores a dict into itself: the data has a cycle");
    expect_error(
        BYTES("]\x94h\x00\x85"
              "a."),
        "byte 7: APPEND changes a list that is already part of another: the data has a cycle");
}

static void depth(void **state)
{
    (void)state;
    char data[256], error[128];
    for (size_t levels = PICKLE_DEPTH_MAX - 1; levels < PICKLE_DEPTH_MAX + 3; levels++) {
        memset(data, ']', levels);
        memset(data + levels, 'a', levels - 1);
        data[2 * levels - 1] = '.';
        if (levels <= PICKLE_DEPTH_MAX) {
            expect_kind(data, 2 * levels, PICKLE_LIST);
            continue;
        }
        snprintf(error, sizeof error, "byte %zu: APPEND nests lists and dicts more than 64 deep",
                 2 + levels + PICKLE_DEPTH_MAX - 1);
        expect_error(data, 2 * levels, error);
    }
}

static void inputs(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t size;
        const char *error;
    } bad[] = {
        {BYTES(""), "byte 0: the file is empty"},
        {BYTES("PK\003\004rest"),
         "byte 0: this is a zip archive, as torch.save writes; a memory snapshot is the plain "
         "pickle that torch.cuda.memory._dump_snapshot writes"},
        {BYTES("\x1f\x8b\x08\x00"), "byte 0: the compressed file is cut short"},
        {BYTES("\x1f\x8b\x08\xff\0\0\0\0"),
         "byte 0: gzip cannot decompress what follows: unknown header flags set; the file is "
         "damaged: fetch it again"},
        {BYTES("<html>"), "byte 0: this is text, perhaps a web page; a memory snapshot is a pickle "
                          "of protocol 2 to 5"},
        {BYTES("version https://git-lfs.github.com/spec/v1\n"),
         "byte 0: this is a Git LFS pointer, not the file it stands for; run git lfs pull"},
        {BYTES("\x01\x02"),
         "byte 0: this begins with 0x01; a memory snapshot is a pickle of protocol "
         "2 to 5, which begins with 0x80"},
        {BYTES("\x28\xb5\x2f\xfd"), "byte 0: the compressed file is cut short"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pickle_input input;
        assert_false(pickle_input_attach(&input, bad[i].data, bad[i].size));
        assert_string_equal(input.error, bad[i].error);
        pickle_input_finish(&input);
    }
}

/* Appends a member of gzip to `packed`, of which `size` bytes are there. */
static size_t pack(uint8_t *packed, size_t size, size_t capacity, const void *data, size_t length)
{
    z_stream stream = {.next_in = (Bytef *)data,
                       .avail_in = (uInt)length,
                       .next_out = packed + size,
                       .avail_out = (uInt)(capacity - size)};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return capacity - stream.avail_out;
}

/* The error of what is packed, "" if all of it can be read; `end` is its last byte. */
static const char *unpack(const uint8_t *packed, size_t size, size_t length, char end)
{
    static struct pickle_input input;
    static char error[sizeof input.error];
    bool whole = pickle_input_attach(&input, packed, size) &&
                 pickle_input_skip(&input, length - 1) && pickle_input_need(&input, 1) &&
                 *input.next == (uint8_t)end;
    bool more = whole && pickle_input_skip(&input, 1) && pickle_input_need(&input, 1);
    snprintf(error, sizeof error, "%s", input.error);
    pickle_input_finish(&input);
    assert_true(whole || error[0]);
    assert_false(more);
    return error;
}

/* What gzip packed is read as if it were not: of several members, and more than a window of it. A
 * file that was cut, changed, or packed twice says so. */
static void gzipped(void **state)
{
    enum { SIZE = 3 << 20 };
    static uint8_t data[SIZE], packed[2 * SIZE], twice[2 * SIZE];
    (void)state;
    memcpy(data, "\x80\x04", 2);
    for (size_t i = 2; i < SIZE; i++)
        data[i] = (uint8_t)((i * i >> 7) ^ (i >> 3));
    size_t first = pack(packed, 0, sizeof packed, data, SIZE / 3);
    size_t size = pack(packed, first, sizeof packed, data + SIZE / 3, SIZE - SIZE / 3);
    assert_string_equal(unpack(packed, first, SIZE / 3, (char)data[SIZE / 3 - 1]), "");
    assert_string_equal(unpack(packed, size, SIZE, (char)data[SIZE - 1]), "");
    assert_non_null(strstr(unpack(packed, size - 1, SIZE + 1, 0), "the compressed file is cut"));
    assert_non_null(strstr(unpack(packed, first + 3, SIZE, 0), "the compressed file is cut short"));
    packed[first - 5] ^= 1;
    assert_non_null(strstr(unpack(packed, size, SIZE, 0),
                           "gzip cannot decompress what follows: incorrect data check; the file "
                           "is damaged"));
    size_t again = pack(twice, 0, sizeof twice, packed, first);
    assert_string_equal(unpack(twice, again, 2, 0),
                        "byte 0: what was compressed with gzip is gzip-compressed again; "
                        "decompress it first (gunzip)");
}

/* Whatever a file is made of, what is allocated for it keeps to its bound: here files that are
 * nothing but containers, marks, numbers, or entries of the memo. */
static void memory_is_bounded(void **state)
{
    enum { SIZE = 4 << 20 };
    static const char *const parts[] = {
        "]",       "}",  "(",  "N",   "]\x94", "}\x94",
        "(]",      "(}", "N2", "]0]", "N\x94", "\x8a\x08\x81\x81\x81\x81\x81\x81\x81\x7f",
        "\x8c\x02"};
    static struct reading reading;
    bool stopped = false;
    (void)state;
    char *data = malloc(SIZE);
    assert_non_null(data);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strlen(parts[i]);
        memcpy(data, "\x80\x04", 2);
        for (size_t at = 2; at < SIZE; at++)
            data[at] = parts[i][(at - 2) % length];
        assert_true(pickle_input_attach(&reading.input, data, SIZE));
        assert_false(pickle_read(&reading.pickle, &reading.input, words, 3, reduce_none, NULL,
                                 &reading.top));
        if (reading.pickle.allocated > (UINT64_C(16) << 20) + 24 * (uint64_t)SIZE)
            fail_msg("\"%s\": %llu bytes", parts[i], (unsigned long long)reading.pickle.allocated);
        stopped |=
            strstr(reading.pickle.error,
                   "more memory than the limit of 16 MiB + 24 bytes per byte of the file") != NULL;
        finish(&reading);
    }
    assert_true(stopped);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(scalars),
        cmocka_unit_test(tuples),
        cmocka_unit_test(dicts),
        cmocka_unit_test(lists),
        cmocka_unit_test(records_replace_dicts),
        cmocka_unit_test(records_in_a_row),
        cmocka_unit_test(memo),
        cmocka_unit_test(stack),
        cmocka_unit_test(refused),
        cmocka_unit_test(lengths),
        cmocka_unit_test(cycles),
        cmocka_unit_test(depth),
        cmocka_unit_test(inputs),
        cmocka_unit_test(gzipped),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
