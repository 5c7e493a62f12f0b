/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the opcodes: what follows each, and what each does to the machine of pickle_store.c.
 *
 * Keeps: every length is held against what remains of the stream before it is used; an opcode that
 * would run code, and an unknown one, ends the reading. Assumes nothing about the bytes. Opcodes:
 * python/cpython, Lib/pickletools.py. */
#include "input/pickle/pickle_machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_LINE_MAX 255

enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_DUP = '2',
    OP_FLOAT = 'F',
    OP_INT = 'I',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_LONG = 'L',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_PERSID = 'P',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_STRING = 'S',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_UNICODE = 'V',
    OP_BINUNICODE = 'X',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_DICT = 'd',
    OP_EMPTY_DICT = '}',
    OP_APPENDS = 'e',
    OP_GET = 'g',
    OP_BINGET = 'h',
    OP_INST = 'i',
    OP_LONG_BINGET = 'j',
    OP_LIST = 'l',
    OP_EMPTY_LIST = ']',
    OP_OBJ = 'o',
    OP_PUT = 'p',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_EMPTY_TUPLE = ')',
    OP_SETITEMS = 'u',
    OP_BINFLOAT = 'G',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_PROTO = 0x80,
    OP_NEWOBJ,
    OP_EXT1,
    OP_EXT2,
    OP_EXT4,
    OP_TUPLE1,
    OP_TUPLE2,
    OP_TUPLE3,
    OP_NEWTRUE,
    OP_NEWFALSE,
    OP_LONG1,
    OP_LONG4,
    OP_SHORT_BINUNICODE,
    OP_BINUNICODE8,
    OP_BINBYTES8,
    OP_EMPTY_SET,
    OP_ADDITEMS,
    OP_FROZENSET,
    OP_NEWOBJ_EX,
    OP_STACK_GLOBAL,
    OP_MEMOIZE,
    OP_FRAME,
    OP_BYTEARRAY8,
    OP_NEXT_BUFFER,
    OP_READONLY_BUFFER,
};

/* What follows an opcode, and for those that are refused, why. */
enum argument { NOTHING, BYTES, LINE, RUNS_CODE, MAKES_A_SET, NEEDS_A_BUFFER };

static const struct {
    const char *name;
    enum argument argument;
    unsigned char size; /* of BYTES */
} opcodes[256] = {
    [OP_MARK] = {"MARK", NOTHING, 0},
    [OP_STOP] = {"STOP", NOTHING, 0},
    [OP_POP] = {"POP", NOTHING, 0},
    [OP_POP_MARK] = {"POP_MARK", NOTHING, 0},
    [OP_DUP] = {"DUP", NOTHING, 0},
    [OP_FLOAT] = {"FLOAT", LINE, 0},
    [OP_INT] = {"INT", LINE, 0},
    [OP_BININT] = {"BININT", BYTES, 4},
    [OP_BININT1] = {"BININT1", BYTES, 1},
    [OP_LONG] = {"LONG", LINE, 0},
    [OP_BININT2] = {"BININT2", BYTES, 2},
    [OP_NONE] = {"NONE", NOTHING, 0},
    [OP_PERSID] = {"PERSID", RUNS_CODE, 0},
    [OP_BINPERSID] = {"BINPERSID", RUNS_CODE, 0},
    [OP_REDUCE] = {"REDUCE", RUNS_CODE, 0},
    [OP_STRING] = {"STRING", LINE, 0},
    [OP_BINSTRING] = {"BINSTRING", BYTES, 4},
    [OP_SHORT_BINSTRING] = {"SHORT_BINSTRING", BYTES, 1},
    [OP_UNICODE] = {"UNICODE", LINE, 0},
    [OP_BINUNICODE] = {"BINUNICODE", BYTES, 4},
    [OP_APPEND] = {"APPEND", NOTHING, 0},
    [OP_BUILD] = {"BUILD", RUNS_CODE, 0},
    [OP_GLOBAL] = {"GLOBAL", RUNS_CODE, 0},
    [OP_DICT] = {"DICT", NOTHING, 0},
    [OP_EMPTY_DICT] = {"EMPTY_DICT", NOTHING, 0},
    [OP_APPENDS] = {"APPENDS", NOTHING, 0},
    [OP_GET] = {"GET", LINE, 0},
    [OP_BINGET] = {"BINGET", BYTES, 1},
    [OP_INST] = {"INST", RUNS_CODE, 0},
    [OP_LONG_BINGET] = {"LONG_BINGET", BYTES, 4},
    [OP_LIST] = {"LIST", NOTHING, 0},
    [OP_EMPTY_LIST] = {"EMPTY_LIST", NOTHING, 0},
    [OP_OBJ] = {"OBJ", RUNS_CODE, 0},
    [OP_PUT] = {"PUT", LINE, 0},
    [OP_BINPUT] = {"BINPUT", BYTES, 1},
    [OP_LONG_BINPUT] = {"LONG_BINPUT", BYTES, 4},
    [OP_SETITEM] = {"SETITEM", NOTHING, 0},
    [OP_TUPLE] = {"TUPLE", NOTHING, 0},
    [OP_EMPTY_TUPLE] = {"EMPTY_TUPLE", NOTHING, 0},
    [OP_SETITEMS] = {"SETITEMS", NOTHING, 0},
    [OP_BINFLOAT] = {"BINFLOAT", BYTES, 8},
    [OP_BINBYTES] = {"BINBYTES", BYTES, 4},
    [OP_SHORT_BINBYTES] = {"SHORT_BINBYTES", BYTES, 1},
    [OP_PROTO] = {"PROTO", BYTES, 1},
    [OP_NEWOBJ] = {"NEWOBJ", RUNS_CODE, 0},
    [OP_EXT1] = {"EXT1", RUNS_CODE, 0},
    [OP_EXT2] = {"EXT2", RUNS_CODE, 0},
    [OP_EXT4] = {"EXT4", RUNS_CODE, 0},
    [OP_TUPLE1] = {"TUPLE1", NOTHING, 0},
    [OP_TUPLE2] = {"TUPLE2", NOTHING, 0},
    [OP_TUPLE3] = {"TUPLE3", NOTHING, 0},
    [OP_NEWTRUE] = {"NEWTRUE", NOTHING, 0},
    [OP_NEWFALSE] = {"NEWFALSE", NOTHING, 0},
    [OP_LONG1] = {"LONG1", BYTES, 1},
    [OP_LONG4] = {"LONG4", BYTES, 4},
    [OP_SHORT_BINUNICODE] = {"SHORT_BINUNICODE", BYTES, 1},
    [OP_BINUNICODE8] = {"BINUNICODE8", BYTES, 8},
    [OP_BINBYTES8] = {"BINBYTES8", BYTES, 8},
    [OP_EMPTY_SET] = {"EMPTY_SET", MAKES_A_SET, 0},
    [OP_ADDITEMS] = {"ADDITEMS", MAKES_A_SET, 0},
    [OP_FROZENSET] = {"FROZENSET", MAKES_A_SET, 0},
    [OP_NEWOBJ_EX] = {"NEWOBJ_EX", RUNS_CODE, 0},
    [OP_STACK_GLOBAL] = {"STACK_GLOBAL", RUNS_CODE, 0},
    [OP_MEMOIZE] = {"MEMOIZE", NOTHING, 0},
    [OP_FRAME] = {"FRAME", BYTES, 8},
    [OP_BYTEARRAY8] = {"BYTEARRAY8", BYTES, 8},
    [OP_NEXT_BUFFER] = {"NEXT_BUFFER", NEEDS_A_BUFFER, 0},
    [OP_READONLY_BUFFER] = {"READONLY_BUFFER", NEEDS_A_BUFFER, 0},
};

static const char *const refusals[] = {
    [RUNS_CODE] = "would run code",
    [MAKES_A_SET] = "makes a set",
    [NEEDS_A_BUFFER] = "needs a buffer from outside the file",
};

/* The stream could not give what the opcode needs: it ended, or reading failed. */
static bool fail_short(struct pickle *pickle)
{
    if (!pickle->input->error[0])
        return pickle_fail(pickle, pickle->op_offset,
                           "the data ends, at byte %" PRIu64 ", inside %s",
                           pickle->input->end_offset, pickle->op_name);
    if (!pickle->error[0])
        snprintf(pickle->error, sizeof pickle->error, "%s", pickle->input->error);
    return false;
}

/* Before `length` bytes are passed over: whether there can be as many. */
static bool check_length(struct pickle *pickle, uint64_t length)
{
    uint64_t remaining = pickle_input_remaining(pickle->input);
    if (length <= remaining)
        return true;
    return pickle_fail(pickle, pickle->op_offset,
                       "%s of %" PRIu64 " bytes, where only %" PRIu64 " follow", pickle->op_name,
                       length, remaining);
}

static bool push_text(struct pickle *pickle, const char *text, size_t length)
{
    uint32_t number;
    return pickle_text_add(pickle, text, length, &number) &&
           pickle_push(pickle,
                       pickle_make(number < pickle->word_count ? TAG_WORD : TAG_TEXT, number));
}

static bool read_text(struct pickle *pickle, uint64_t length)
{
    if (!check_length(pickle, length))
        return false;
    size_t kept = length < PICKLE_TEXT_MAX ? (size_t)length : PICKLE_TEXT_MAX;
    if (!pickle_input_need(pickle->input, kept))
        return fail_short(pickle);
    return push_text(pickle, (const char *)pickle->input->next, kept) &&
           (pickle_input_skip(pickle->input, length) || fail_short(pickle));
}

static bool read_bytes(struct pickle *pickle, uint64_t length)
{
    if (!check_length(pickle, length))
        return false;
    return pickle_input_skip(pickle->input, length) ? pickle_push(pickle, pickle_make(TAG_BYTES, 0))
                                                    : fail_short(pickle);
}

/* LONG1, LONG4: two's complement, little endian, any length; 0 bytes are 0. */
static bool read_long(struct pickle *pickle, uint64_t length)
{
    struct pickle_input *input = pickle->input;
    if (!check_length(pickle, length))
        return false;

    size_t head = length < 9 ? (size_t)length : 9;
    if (!pickle_input_need(input, head))
        return fail_short(pickle);
    const uint8_t *bytes = input->next;
    pickle_value value = pickle_make(TAG_HUGE, 0);
    if (length < 9 || (length == 9 && (bytes[8] == 0 || bytes[8] == 0xff))) {
        bool negative = length && bytes[length - 1] >> 7;
        uint64_t bits = negative ? UINT64_MAX : 0;
        for (size_t i = 0; i < 8 && i < head; i++)
            bits = (bits & ~(UINT64_C(0xff) << 8 * i)) | (uint64_t)bytes[i] << 8 * i;
        bool beyond = negative && !(bits >> 63); /* below INT64_MIN */
        if (!beyond && !pickle_make_integer(pickle, bits, negative, &value))
            return false;
    }
    return pickle_input_skip(input, length) ? pickle_push(pickle, value) : fail_short(pickle);
}

/* Reads a line into `line`, which ends in NUL; *length may be more than what fitted. */
static bool read_line(struct pickle *pickle, char line[TEXT_LINE_MAX + 1], size_t *length)
{
    struct pickle_input *input = pickle->input;
    size_t count = 0;
    for (;;) {
        if (!pickle_input_need(input, 1))
            return fail_short(pickle);
        const uint8_t *stop = memchr(input->next, '\n', (size_t)(input->end - input->next));
        const uint8_t *end = stop ? stop : input->end;
        size_t here = (size_t)(end - input->next);
        if (count < TEXT_LINE_MAX)
            memcpy(line + count, input->next,
                   here < TEXT_LINE_MAX - count ? here : TEXT_LINE_MAX - count);
        count += here;
        input->next = stop ? stop + 1 : end;
        if (!stop)
            continue;
        line[count < TEXT_LINE_MAX ? count : TEXT_LINE_MAX] = 0;
        *length = count;
        return true;
    }
}

/* Decimal digits with a sign, and nothing else. */
static bool parse_integer(const char *text, bool *negative, uint64_t *magnitude, bool *huge)
{
    *negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    *magnitude = 0;
    *huge = false;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (*magnitude > (UINT64_MAX - digit) / 10)
            *huge = true;
        else
            *magnitude = *magnitude * 10 + digit;
    }
    return true;
}

static bool number_line(struct pickle *pickle, enum opcode opcode, char *line, size_t length)
{
    bool negative, huge;
    uint64_t magnitude;
    pickle_value value = pickle_make(TAG_HUGE, 0);

    /* 01 and 00 are True and False: pickletools, "decimalnl_short". */
    if (opcode == OP_INT && (!strcmp(line, "00") || !strcmp(line, "01")))
        return pickle_push(pickle, pickle_make(TAG_BOOL, line[1] == '1'));
    if (opcode == OP_LONG && length && line[length - 1] == 'L')
        line[length - 1] = 0;
    if (!parse_integer(line, &negative, &magnitude, &huge))
        return pickle_fail(pickle, pickle->op_offset, "%s is not a decimal number",
                           pickle->op_name);
    if (negative && magnitude > (uint64_t)INT64_MAX + 1)
        huge = true;
    if (!huge && !pickle_make_integer(pickle, negative ? 0 - magnitude : magnitude,
                                      negative && magnitude, &value))
        return false;
    return pickle_push(pickle, value);
}

static bool run_line(struct pickle *pickle, enum opcode opcode)
{
    char line[TEXT_LINE_MAX + 1];
    size_t length = 0;
    if (!read_line(pickle, line, &length))
        return false;

    bool whole = length <= TEXT_LINE_MAX && strlen(line) == length;
    size_t kept = length < TEXT_LINE_MAX ? length : TEXT_LINE_MAX;
    if (opcode == OP_UNICODE)
        return push_text(pickle, line, kept);
    if (opcode == OP_STRING) {
        bool quoted = length >= 2 && (line[0] == '\'' || line[0] == '"');
        return quoted
                   ? push_text(pickle, line + 1, length == kept ? kept - 2 : kept - 1)
                   : pickle_fail(pickle, pickle->op_offset, "%s without quotes", pickle->op_name);
    }
    if (!whole)
        return pickle_fail(pickle, pickle->op_offset,
                           "%s is not a decimal number of less than %d digits", pickle->op_name,
                           TEXT_LINE_MAX + 1);
    if (opcode == OP_INT || opcode == OP_LONG)
        return number_line(pickle, opcode, line, length);
    if (opcode == OP_FLOAT)
        return length && strspn(line, "+-.0123456789eEinfaN") == length
                   ? pickle_push(pickle, pickle_make(TAG_FLOAT, 0))
                   : pickle_fail(pickle, pickle->op_offset, "%s is not a decimal number",
                                 pickle->op_name);

    bool negative, huge;
    uint64_t index;
    if (!parse_integer(line, &negative, &index, &huge) || negative || huge)
        return pickle_fail(pickle, pickle->op_offset, "%s is not the number of a memo entry",
                           pickle->op_name);
    return opcode == OP_GET ? pickle_memo_get(pickle, index) : pickle_memo_put(pickle, index);
}

/* Opcodes with a number of `size` bytes after them, little endian (but BINFLOAT). */
static bool run_bytes(struct pickle *pickle, enum opcode opcode, size_t size)
{
    if (!pickle_input_need(pickle->input, size))
        return fail_short(pickle);
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number |= (uint64_t)pickle->input->next[i] << 8 * i;
    pickle->input->next += size;

    bool negative = size == 4 && number >> 31;
    switch (opcode) {
    case OP_BININT1:
    case OP_BININT2:
        return pickle_push(pickle, pickle_make(TAG_INT, number));
    case OP_BININT:
        return pickle_push(pickle, pickle_make(TAG_INT, negative ? number | (PICKLE_PAYLOAD_MAX &
                                                                             ~UINT64_C(0xffffffff))
                                                                 : number));
    case OP_BINFLOAT:
        return pickle_push(pickle, pickle_make(TAG_FLOAT, 0));
    case OP_BINGET:
    case OP_LONG_BINGET:
        return pickle_memo_get(pickle, number);
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return pickle_memo_put(pickle, number);
    case OP_LONG4:
    case OP_BINSTRING: /* their lengths have a sign */
        if (negative)
            return pickle_fail(pickle, pickle->op_offset, "%s of a negative length",
                               pickle->op_name);
        return opcode == OP_LONG4 ? read_long(pickle, number) : read_text(pickle, number);
    case OP_LONG1:
        return read_long(pickle, number);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE:
    case OP_BINUNICODE:
    case OP_BINUNICODE8:
        return read_text(pickle, number);
    case OP_SHORT_BINBYTES:
    case OP_BINBYTES:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return read_bytes(pickle, number);
    case OP_FRAME:
        return check_length(pickle, number);
    case OP_PROTO:
        return (number >= 2 && number <= 5) ||
               pickle_fail(pickle, pickle->op_offset,
                           "a pickle of protocol %" PRIu64 "; 2 to 5 are read", number);
    default:
        return pickle_fail(pickle, pickle->op_offset, "opcode %s is not expected", pickle->op_name);
    }
}

/* Opcodes without an argument, but STOP. */
static bool run_plain(struct pickle *pickle, enum opcode opcode)
{
    size_t first = 0;
    switch (opcode) {
    case OP_MARK:
        return pickle_push_mark(pickle);
    case OP_POP:
        /* On a mark it takes the mark: Lib/pickle.py, load_pop. */
        if (pickle->mark_count && pickle->marks[pickle->mark_count - 1] == pickle->stack_size)
            return pickle_pop_mark(pickle, &first);
        if (!pickle_has(pickle, 1))
            return false;
        pickle->stack_size--;
        return true;
    case OP_POP_MARK:
        if (!pickle_pop_mark(pickle, &first))
            return false;
        pickle->stack_size = first;
        return true;
    case OP_DUP:
        return pickle_has(pickle, 1) &&
               pickle_push_again(pickle, pickle->stack[pickle->stack_size - 1].value);
    case OP_NONE:
        return pickle_push(pickle, pickle_make(TAG_NONE, 0));
    case OP_NEWTRUE:
        return pickle_push(pickle, pickle_make(TAG_BOOL, 1));
    case OP_NEWFALSE:
        return pickle_push(pickle, pickle_make(TAG_BOOL, 0));
    case OP_EMPTY_LIST:
        return pickle_push_empty(pickle, TAG_LIST);
    case OP_EMPTY_DICT:
        return pickle_push_empty(pickle, TAG_DICT);
    case OP_EMPTY_TUPLE:
        return pickle_make_tuple(pickle, pickle->stack_size);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        first = (size_t)opcode - OP_TUPLE1 + 1;
        return pickle_has(pickle, first) && pickle_make_tuple(pickle, pickle->stack_size - first);
    case OP_TUPLE:
        return pickle_pop_mark(pickle, &first) && pickle_make_tuple(pickle, first);
    case OP_LIST:
        return pickle_collect(pickle, TAG_LIST);
    case OP_DICT:
        return pickle_collect(pickle, TAG_DICT);
    case OP_APPEND:
        return pickle_store_some(pickle, 1, TAG_LIST);
    case OP_APPENDS:
        return pickle_store_marked(pickle, TAG_LIST);
    case OP_SETITEM:
        return pickle_store_some(pickle, 2, TAG_DICT);
    case OP_SETITEMS:
        return pickle_store_marked(pickle, TAG_DICT);
    case OP_MEMOIZE:
        return pickle_memo_put(pickle, pickle->memo_size);
    default:
        return pickle_fail(pickle, pickle->op_offset, "opcode %s is not expected", pickle->op_name);
    }
}

/* Runs up to STOP. */
static bool run(struct pickle *pickle)
{
    struct pickle_input *input = pickle->input;
    for (;;) {
        pickle->op_name = "the pickle, before its STOP";
        pickle->op_offset = pickle_input_offset(input);
        if (!pickle_input_need(input, 1))
            return fail_short(pickle);
        uint8_t byte = *input->next++;
        enum opcode opcode = (enum opcode)byte;
        if (!opcodes[byte].name)
            return pickle_fail(pickle, pickle->op_offset, "0x%02x is not a pickle opcode", byte);
        pickle->op_name = opcodes[byte].name;
        if (opcode == OP_STOP)
            return true;

        bool done = false;
        switch (opcodes[byte].argument) {
        case NOTHING:
            done = run_plain(pickle, opcode);
            break;
        case BYTES:
            done = run_bytes(pickle, opcode, opcodes[byte].size);
            break;
        case LINE:
            done = run_line(pickle, opcode);
            break;
        case RUNS_CODE:
        case MAKES_A_SET:
        case NEEDS_A_BUFFER:
            return pickle_fail(pickle, pickle->op_offset,
                               "opcode %s %s; a memory snapshot has none", pickle->op_name,
                               refusals[opcodes[byte].argument]);
        }
        if (!done)
            return false;
    }
}

bool pickle_read(struct pickle *pickle, struct pickle_input *input, const char *const *words,
                 size_t word_count, pickle_reduce reduce, void *context, struct pickle_place *top)
{
    *pickle = (struct pickle){.input = input,
                              .words = words,
                              .word_count = word_count,
                              .reduce = reduce,
                              .context = context,
                              .dict_free = SIZE_MAX,
                              .list_free = SIZE_MAX};
    if (!pickle_texts_init(pickle) || !run(pickle))
        return false;
    if (pickle->stack_size != 1 || pickle->mark_count)
        return pickle_fail(pickle, pickle->op_offset,
                           "STOP with %zu values and %zu marks on the stack, not one value",
                           pickle->stack_size, pickle->mark_count);
    if (pickle_input_need(input, 1))
        return pickle_fail(pickle, pickle_input_offset(input),
                           "more data follows the pickle's STOP");
    if (input->error[0])
        return fail_short(pickle);
    *top = pickle->stack[0];
    /* As if in a container of its own kind: the callback is for parts. */
    top->value = pickle_seal(pickle, top->value, pickle_kind(top->value) == PICKLE_LIST);
    return true;
}
