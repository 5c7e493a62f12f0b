/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Decompresses zstd (RFC 8878), block by block: a block's bytes are collected, then decoded behind
 * the window that matches refer to. Owns the window and the tables that a block may reuse from the
 * one before.
 *
 * The bytes are untrusted: every read is within what was collected, every write within what was
 * allocated, and any inconsistency is an error. */
#include <zstd.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MOST ((size_t)128 << 10)
#define WINDOW_MOST ((uint64_t)128 << 20)
#define SLACK 8 /* bytes behind a block that may be read, and are 0 */
#define HUFFMAN_LOG 11
#define FSE_LOG 9

enum error { FINE, CORRUPT, NO_MEMORY, TOO_LARGE, DICTIONARY, UNKNOWN_PREFIX, ERRORS };
enum stage {
    STAGE_MAGIC,
    STAGE_HEADER,
    STAGE_BLOCK_HEADER,
    STAGE_BLOCK,
    STAGE_CHECKSUM,
    STAGE_SKIP_SIZE,
    STAGE_SKIP
};

struct fse_entry {
    uint16_t base;
    uint8_t symbol, bits;
};

struct fse_table {
    struct fse_entry entries[1 << FSE_LOG];
    unsigned log;
    bool there;
};

struct huffman_table {
    struct {
        uint8_t symbol, bits;
    } entries[1 << HUFFMAN_LOG];
    unsigned log; /* 0: no table was read yet */
};

enum sequence_part { LITERAL_LENGTH, OFFSET, MATCH_LENGTH, PARTS };

struct ZSTD_DCtx_s {
    enum stage stage;
    uint8_t *input; /* the collected bytes of the next piece, with SLACK */
    size_t have, need;
    uint64_t skip; /* of STAGE_SKIP, bytes */
    bool last, checksum;
    unsigned type; /* of the block */
    size_t block_size;
    uint64_t window;
    uint8_t *out;
    size_t capacity, end, flushed; /* out[flushed .. end) was not taken yet */
    uint32_t repeats[3];
    struct huffman_table huffman;
    struct fse_table tables[PARTS];
    uint8_t literals[BLOCK_MOST + SLACK];
    size_t literal_count;
};

/* ---- bits ---- */

static unsigned highest_bit(uint32_t value)
{
    return 31 - (unsigned)__builtin_clz(value);
}

static uint64_t little(const uint8_t *data, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | data[i];
    return value;
}

/* A stream that is read backwards from its end. `at` is the number of bits that are left; below 0
 * it reads zeros. */
struct backward {
    const uint8_t *data;
    int64_t at;
};

static bool backward_begin(struct backward *stream, const uint8_t *data, size_t size)
{
    if (!size || !data[size - 1])
        return false;
    *stream = (struct backward){data, (int64_t)(size - 1) * 8 + highest_bit(data[size - 1])};
    return true;
}

/* Returns up to 32 bits below `at`. SLACK bytes behind the stream must be readable. */
static uint32_t backward_peek(const struct backward *stream, unsigned count)
{
    int64_t from = stream->at - count;
    uint64_t word;
    if (!count || stream->at <= 0)
        return 0;
    memcpy(&word, stream->data + (from > 0 ? from / 8 : 0), sizeof word);
    word = from >= 0 ? word >> from % 8 : word << -from;
    return (uint32_t)(word & ((UINT64_C(1) << count) - 1));
}

static uint32_t backward_read(struct backward *stream, unsigned count)
{
    uint32_t value = backward_peek(stream, count);
    stream->at -= count;
    return value;
}

/* ---- finite state entropy ---- */

/* Makes a table of probabilities. Symbols with a probability below 1 are at its end. */
static bool fse_build(struct fse_table *table, const int16_t *probabilities, unsigned count,
                      unsigned log)
{
    uint32_t size = UINT32_C(1) << log, high = size, at = 0, step = (size >> 1) + (size >> 3) + 3;
    uint16_t next[256];
    for (unsigned symbol = 0; symbol < count; symbol++) {
        next[symbol] = (uint16_t)(probabilities[symbol] < 0 ? 1 : probabilities[symbol]);
        if (probabilities[symbol] < 0)
            table->entries[--high].symbol = (uint8_t)symbol;
    }
    for (unsigned symbol = 0; symbol < count; symbol++)
        for (int i = 0; i < probabilities[symbol]; i++) {
            table->entries[at].symbol = (uint8_t)symbol;
            do
                at = (at + step) & (size - 1);
            while (at >= high);
        }
    if (at)
        return false;
    for (uint32_t i = 0; i < size; i++) {
        struct fse_entry *entry = &table->entries[i];
        uint32_t state = next[entry->symbol]++;
        entry->bits = (uint8_t)(log - highest_bit(state));
        entry->base = (uint16_t)((state << entry->bits) - size);
    }
    table->log = log;
    table->there = true;
    return true;
}

/* Reads a description of up to `symbols` probabilities; returns its size in bytes, or 0 if it is
 * not valid. */
static size_t fse_read(struct fse_table *table, const uint8_t *data, size_t size, unsigned symbols,
                       unsigned most_log)
{
    int16_t probabilities[256] = {0};
    size_t bit = 4;
    unsigned log = size ? (data[0] & 15) + 5U : 99, symbol = 0;
    if (log > most_log)
        return 0;
    int32_t left = 1 << log;
    while (left > 0) {
        if (symbol >= symbols || bit / 8 >= size)
            return 0;
        unsigned bits = highest_bit((uint32_t)left + 1) + 1;
        uint32_t value =
            (uint32_t)(little(data + bit / 8, 4) >> bit % 8) & ((UINT32_C(1) << bits) - 1);
        uint32_t low = (UINT32_C(1) << (bits - 1)) - 1,
                 threshold = (UINT32_C(1) << bits) - 2 - (uint32_t)left;
        if ((value & low) < threshold) {
            value &= low;
            bits--;
        } else if (value > low) {
            value -= threshold;
        }
        bit += bits;
        int probability = (int)value - 1;
        left -= probability < 0 ? 1 : probability;
        probabilities[symbol++] = (int16_t)probability;
        for (unsigned zeros = probability ? 0 : 3; zeros == 3;) {
            if (bit / 8 >= size)
                return 0;
            zeros = (unsigned)(little(data + bit / 8, 2) >> bit % 8) & 3;
            bit += 2;
            symbol += zeros;
            if (symbol > symbols)
                return 0;
        }
    }
    size_t used = (bit + 7) / 8;
    return left == 0 && used <= size && fse_build(table, probabilities, symbol, log) ? used : 0;
}

/* ---- Huffman ---- */

/* Reads the compressed weights of a tree: two states take turns until the bits are used up. Returns
 * how many there are, 0 if they are invalid. */
static unsigned weights_read(const uint8_t *data, size_t size, uint8_t *weights)
{
    struct fse_table table;
    struct backward stream;
    size_t used = fse_read(&table, data, size, 13, 6);
    if (!used || !backward_begin(&stream, data + used, size - used))
        return 0;
    uint32_t states[2];
    for (int i = 0; i < 2; i++)
        states[i] = backward_read(&stream, table.log);
    for (unsigned count = 0; count < 254; count++) {
        uint32_t *state = &states[count & 1];
        const struct fse_entry *entry = &table.entries[*state];
        weights[count] = entry->symbol;
        *state = entry->base + backward_read(&stream, entry->bits);
        if (stream.at < 0) {
            weights[count + 1] = table.entries[states[~count & 1]].symbol;
            return count + 2;
        }
    }
    return 0;
}

/* The weight of the last symbol fills the sum up to a power of two. */
static bool huffman_build(struct huffman_table *table, uint8_t *weights, unsigned count)
{
    uint32_t sum = 0, at = 0;
    for (unsigned i = 0; i < count; i++) {
        if (weights[i] > HUFFMAN_LOG)
            return false;
        sum += weights[i] ? UINT32_C(1) << (weights[i] - 1) : 0;
    }
    if (!sum)
        return false;
    unsigned log = highest_bit(sum) + 1;
    uint32_t left = (UINT32_C(1) << log) - sum;
    if (log > HUFFMAN_LOG || (left & (left - 1)))
        return false;
    weights[count++] = (uint8_t)(highest_bit(left) + 1);
    for (unsigned weight = 1; weight <= log; weight++)
        for (unsigned symbol = 0; symbol < count; symbol++)
            for (uint32_t i = 0; weights[symbol] == weight && i < UINT32_C(1) << (weight - 1);
                 i++, at++) {
                table->entries[at].symbol = (uint8_t)symbol;
                table->entries[at].bits = (uint8_t)(log + 1 - weight);
            }
    table->log = log;
    return at == UINT32_C(1) << log;
}

/* Reads the description of a tree. Returns its size in bytes, or 0 if it is not valid. */
static size_t huffman_read(struct huffman_table *table, const uint8_t *data, size_t size)
{
    uint8_t weights[256] = {0};
    table->log = 0;
    if (!size)
        return 0;
    size_t used = data[0] < 128 ? data[0] : (data[0] - 126U) / 2;
    unsigned count = data[0] < 128 ? 0 : data[0] - 127U;
    if (used > size - 1)
        return 0;
    if (data[0] < 128)
        count = weights_read(data + 1, used, weights);
    for (unsigned i = 0; data[0] >= 128 && i < count; i++)
        weights[i] = i & 1 ? data[1 + i / 2] & 15 : data[1 + i / 2] >> 4;
    return count && huffman_build(table, weights, count) ? 1 + used : 0;
}

static bool huffman_stream(const struct huffman_table *table, const uint8_t *data, size_t size,
                           uint8_t *to, size_t count)
{
    struct backward stream;
    if (!backward_begin(&stream, data, size))
        return false;
    for (size_t i = 0; i < count; i++) {
        uint32_t code = backward_peek(&stream, table->log);
        to[i] = table->entries[code].symbol;
        stream.at -= table->entries[code].bits;
    }
    return stream.at == 0;
}

/* ---- a block ---- */

static bool huffman_literals(struct ZSTD_DCtx_s *c, const uint8_t *data, size_t size, bool four)
{
    size_t sizes[4] = {size}, quarter = four ? (c->literal_count + 3) / 4 : c->literal_count;
    if (four) {
        if (size < 6)
            return false;
        for (int i = 0; i < 3; i++)
            sizes[i] = (size_t)little(data + 2 * i, 2);
        data += 6;
        size -= 6;
        if (sizes[0] + sizes[1] + sizes[2] > size || 3 * quarter > c->literal_count)
            return false;
        sizes[3] = size - sizes[0] - sizes[1] - sizes[2];
    }
    for (size_t i = 0, at = 0; i < (four ? 4 : 1); i++) {
        size_t count = four && i == 3 ? c->literal_count - at : quarter;
        if (!huffman_stream(&c->huffman, data, sizes[i], c->literals + at, count))
            return false;
        data += sizes[i];
        at += count;
    }
    return true;
}

/* Returns the bytes of the section, 0 if it is invalid. */
static size_t read_literals(struct ZSTD_DCtx_s *c, const uint8_t *data, size_t size)
{
    unsigned type = data[0] & 3, format = data[0] >> 2 & 3;
    if (type < 2) {
        size_t head = format == 3 ? 3 : format == 1 ? 2 : 1;
        c->literal_count = (size_t)(little(data, head) >> (head == 1 ? 3 : 4));
        size_t used = head + (type ? 1 : c->literal_count);
        if (c->literal_count > BLOCK_MOST || used > size)
            return 0;
        if (type)
            memset(c->literals, data[head], c->literal_count);
        else
            memcpy(c->literals, data + head, c->literal_count);
        return used;
    }
    size_t head = format < 2 ? 3 : format + 2;
    unsigned bits = format < 2 ? 10 : format == 2 ? 14 : 18;
    uint64_t word = little(data, head), mask = (UINT64_C(1) << bits) - 1;
    size_t packed = (size_t)(word >> (4 + bits) & mask), tree = 0;
    c->literal_count = (size_t)(word >> 4 & mask);
    if (c->literal_count > BLOCK_MOST || head + packed > size)
        return 0;
    if (type == 2 && !(tree = huffman_read(&c->huffman, data + head, packed)))
        return 0;
    bool done =
        c->huffman.log && huffman_literals(c, data + head + tree, packed - tree, format != 0);
    return done ? head + packed : 0;
}

static const int16_t default_lengths[] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                          2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t default_offsets[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t default_matches[] = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
static const struct {
    const int16_t *probabilities;
    unsigned count, log, most_log, symbols;
} parts[PARTS] = {[LITERAL_LENGTH] = {default_lengths, 36, 6, 9, 36},
                  [OFFSET] = {default_offsets, 29, 5, 8, 32},
                  [MATCH_LENGTH] = {default_matches, 53, 6, 9, 53}};

/* Returns the bytes of a table's description; SIZE_MAX if it is invalid. */
static size_t read_table(struct fse_table *table, enum sequence_part part, unsigned mode,
                         const uint8_t *data, size_t size)
{
    switch (mode) {
    case 0:
        return fse_build(table, parts[part].probabilities, parts[part].count, parts[part].log)
                   ? 0
                   : SIZE_MAX;
    case 1:
        if (!size || data[0] >= parts[part].symbols)
            return SIZE_MAX;
        *table = (struct fse_table){.entries = {{0, data[0], 0}}, .there = true};
        return 1;
    case 2: {
        size_t used = fse_read(table, data, size, parts[part].symbols, parts[part].most_log);
        return used ? used : SIZE_MAX;
    }
    default:
        return table->there ? 0 : SIZE_MAX;
    }
}

/* Codes of lengths: what they begin at, and how many bits follow. */
static const uint32_t length_bases[] = {16,  18,  20,  22,   24,   28,   32,   40,    48,    64,
                                        128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
static const uint8_t length_bits[] = {1, 1, 1, 1,  2,  2,  3,  3,  4,  6,
                                      7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint32_t match_bases[] = {35,   37,   39,   41,   43,    47,    51,
                                       59,   67,   83,   99,   131,   259,   515,
                                       1027, 2051, 4099, 8195, 16387, 32771, 65539};
static const uint8_t match_bits[] = {1, 1, 1, 1,  2,  2,  3,  3,  4,  4, 5,
                                     7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static uint32_t read_length(struct backward *stream, unsigned code)
{
    return code < 16 ? code
                     : length_bases[code - 16] + backward_read(stream, length_bits[code - 16]);
}

static uint32_t read_match(struct backward *stream, unsigned code)
{
    return code < 32 ? code + 3
                     : match_bases[code - 32] + backward_read(stream, match_bits[code - 32]);
}

/* The offset that a value stands for. The first three values mean the offsets of the last
 * matches. */
static uint32_t take_offset(uint32_t *repeats, uint32_t value, bool literals)
{
    unsigned place = value > 3 ? 3 : value - literals;
    uint32_t offset = value > 3 ? value - 3 : place < 3 ? repeats[place] : repeats[0] - 1;
    for (unsigned i = place < 2 ? place : 2; i > 0; i--)
        repeats[i] = repeats[i - 1];
    repeats[0] = offset;
    return offset;
}

static bool put_literals(struct ZSTD_DCtx_s *c, size_t *taken, size_t count, size_t limit)
{
    if (count > c->literal_count - *taken || c->end + count > limit)
        return false;
    memcpy(c->out + c->end, c->literals + *taken, count);
    *taken += count;
    c->end += count;
    return true;
}

static bool put_match(struct ZSTD_DCtx_s *c, uint32_t offset, size_t count, size_t limit)
{
    if (!offset || offset > c->end || c->end + count > limit)
        return false;
    for (uint8_t *to = c->out + c->end, *last = to + count; to < last; to++)
        *to = *(to - offset);
    c->end += count;
    return true;
}

static bool run_sequences(struct ZSTD_DCtx_s *c, const uint8_t *data, size_t size, uint32_t count,
                          size_t limit, size_t *taken)
{
    struct backward stream;
    uint32_t states[PARTS];
    if (!backward_begin(&stream, data, size))
        return false;
    for (int part = 0; part < PARTS; part++)
        states[part] = backward_read(&stream, c->tables[part].log);
    for (uint32_t i = 0; i < count; i++) {
        const struct fse_entry *entries[PARTS];
        for (int part = 0; part < PARTS; part++)
            entries[part] = &c->tables[part].entries[states[part]];
        unsigned code = entries[OFFSET]->symbol;
        uint32_t value = (uint32_t)((UINT64_C(1) << code) + backward_read(&stream, code));
        uint32_t match = read_match(&stream, entries[MATCH_LENGTH]->symbol);
        uint32_t length = read_length(&stream, entries[LITERAL_LENGTH]->symbol);
        static const enum sequence_part order[] = {LITERAL_LENGTH, MATCH_LENGTH, OFFSET};
        for (int k = 0; k < PARTS && i + 1 < count; k++)
            states[order[k]] =
                entries[order[k]]->base + backward_read(&stream, entries[order[k]]->bits);
        if (stream.at < 0 || !put_literals(c, taken, length, limit) ||
            !put_match(c, take_offset(c->repeats, value, length != 0), match, limit))
            return false;
    }
    return stream.at == 0;
}

static bool decode_block(struct ZSTD_DCtx_s *c, const uint8_t *data, size_t size)
{
    size_t limit = c->end + BLOCK_MOST, taken = 0,
           at = size >= 2 ? read_literals(c, data, size) : 0;
    if (!at || at >= size)
        return false;
    uint32_t count = data[at++];
    if (count >= 128 && size - at < (count == 255 ? 2 : 1))
        return false;
    if (count == 255) {
        count = (uint32_t)little(data + at, 2) + 0x7f00;
        at += 2;
    } else if (count >= 128) {
        count = ((count - 128) << 8) + data[at++];
    }
    if (count) {
        if (at >= size || data[at] & 3)
            return false;
        unsigned modes = data[at++];
        for (int part = 0; part < PARTS; part++) {
            size_t used = read_table(&c->tables[part], (enum sequence_part)part,
                                     modes >> (6 - 2 * part) & 3, data + at, size - at);
            if (used == SIZE_MAX)
                return false;
            at += used;
        }
        if (!run_sequences(c, data + at, size - at, count, limit, &taken))
            return false;
    } else if (at != size) {
        return false;
    }
    return put_literals(c, &taken, c->literal_count - taken, limit);
}

/* ---- a frame ---- */

/* Asks for the next piece. */
static enum error await(struct ZSTD_DCtx_s *c, enum stage stage, size_t need)
{
    c->stage = stage;
    c->need = need;
    c->have = 0;
    return FINE;
}

static enum error begin_frame(struct ZSTD_DCtx_s *c)
{
    uint8_t about = c->input[0];
    static const uint8_t id_sizes[] = {0, 1, 2, 4}, size_sizes[] = {0, 2, 4, 8};
    bool single = about >> 5 & 1;
    size_t sized = size_sizes[about >> 6] + (single && !(about >> 6) ? 1U : 0U),
           ids = id_sizes[about & 3], at = single ? 1 : 2;
    if (c->need < at + ids + sized) { /* now the length of the header is known */
        c->need = at + ids + sized;
        return FINE;
    }
    if (about & 8)
        return CORRUPT;
    if (little(c->input + at, ids))
        return DICTIONARY;
    uint64_t base = UINT64_C(1) << (10 + (c->input[1] >> 3));
    c->window = single ? little(c->input + at + ids, sized) + (sized == 2 ? 256 : 0)
                       : base + base / 8 * (c->input[1] & 7);
    if (c->window > WINDOW_MOST)
        return TOO_LARGE;
    c->checksum = about >> 2 & 1;
    size_t capacity = (size_t)c->window + 2 * BLOCK_MOST;
    if (capacity > c->capacity) {
        free(c->out);
        c->out = malloc(capacity);
        c->capacity = c->out ? capacity : 0;
    }
    if (!c->out)
        return NO_MEMORY;
    c->end = c->flushed = 0;
    memcpy(c->repeats, (uint32_t[]){1, 4, 8}, sizeof c->repeats);
    c->huffman.log = 0;
    for (int part = 0; part < PARTS; part++)
        c->tables[part].there = false;
    return await(c, STAGE_BLOCK_HEADER, 3);
}

static enum error begin_block(struct ZSTD_DCtx_s *c)
{
    uint32_t head = (uint32_t)little(c->input, 3);
    c->last = head & 1;
    c->type = head >> 1 & 3;
    c->block_size = head >> 3;
    if (c->type == 3 || c->block_size > BLOCK_MOST)
        return CORRUPT;
    return await(c, STAGE_BLOCK, c->type == 1 ? 1 : c->block_size);
}

static enum error end_block(struct ZSTD_DCtx_s *c)
{
    if (c->end + BLOCK_MOST > c->capacity) { /* all output was taken, so only the window is kept */
        size_t stays = c->window < c->end ? (size_t)c->window : c->end;
        memmove(c->out, c->out + c->end - stays, stays);
        c->end = c->flushed = stays;
    }
    memset(c->input + c->have, 0, SLACK);
    if (c->type == 2 && !decode_block(c, c->input, c->have))
        return CORRUPT;
    if (c->type == 0)
        memcpy(c->out + c->end, c->input, c->block_size);
    if (c->type == 1)
        memset(c->out + c->end, c->input[0], c->block_size);
    c->end += c->type == 2 ? 0 : c->block_size;
    return c->last ? await(c, c->checksum ? STAGE_CHECKSUM : STAGE_MAGIC, 4)
                   : await(c, STAGE_BLOCK_HEADER, 3);
}

static enum error take_magic(struct ZSTD_DCtx_s *c)
{
    uint32_t magic = (uint32_t)little(c->input, 4);
    if (magic == UINT32_C(0xfd2fb528))
        return await(c, STAGE_HEADER, 2);
    return (magic & 0xfffffff0) == UINT32_C(0x184d2a50) ? await(c, STAGE_SKIP_SIZE, 4)
                                                        : UNKNOWN_PREFIX;
}

/* Processes the piece that was asked for and has been collected. */
static enum error advance(struct ZSTD_DCtx_s *c)
{
    switch (c->stage) {
    case STAGE_MAGIC:
        return take_magic(c);
    case STAGE_HEADER:
        return begin_frame(c);
    case STAGE_BLOCK_HEADER:
        return begin_block(c);
    case STAGE_BLOCK:
        return end_block(c);
    case STAGE_SKIP_SIZE:
        c->skip = little(c->input, 4);
        return await(c, STAGE_SKIP, 0);
    default:
        return await(c, STAGE_MAGIC, 4);
    }
}

ZSTD_DCtx *ZSTD_createDCtx(void)
{
    struct ZSTD_DCtx_s *c = calloc(1, sizeof *c);
    if (!c || !(c->input = calloc(1, BLOCK_MOST + SLACK))) {
        free(c);
        return NULL;
    }
    (void)await(c, STAGE_MAGIC, 4);
    return c;
}

size_t ZSTD_freeDCtx(ZSTD_DCtx *c)
{
    if (c) {
        free(c->input);
        free(c->out);
    }
    free(c);
    return 0;
}

static void collect(struct ZSTD_DCtx_s *c, ZSTD_inBuffer *in)
{
    size_t left = in->size - in->pos, want = c->need - c->have;
    if (c->stage == STAGE_SKIP) {
        size_t gone = c->skip < left ? (size_t)c->skip : left;
        in->pos += gone;
        c->skip -= gone;
        return;
    }
    want = want < left ? want : left;
    if (want)
        memcpy(c->input + c->have, (const uint8_t *)in->src + in->pos, want);
    in->pos += want;
    c->have += want;
}

size_t ZSTD_decompressStream(ZSTD_DCtx *c, ZSTD_outBuffer *out, ZSTD_inBuffer *in)
{
    for (;;) {
        size_t ready = c->end - c->flushed, room = out->size - out->pos,
               part = ready < room ? ready : room;
        if (part)
            memcpy((uint8_t *)out->dst + out->pos, c->out + c->flushed, part);
        out->pos += part;
        c->flushed += part;
        if (part < ready)
            return 1;
        if (c->stage == STAGE_MAGIC && !c->have && (part || in->pos == in->size))
            return 0;
        collect(c, in);
        if (c->stage == STAGE_SKIP ? c->skip : c->have < c->need)
            return 1;
        enum error error = advance(c);
        if (error)
            return (size_t)0 - error;
    }
}

unsigned ZSTD_isError(size_t result)
{
    return result > (size_t)0 - ERRORS;
}

const char *ZSTD_getErrorName(size_t result)
{
    static const char *const names[ERRORS] = {[FINE] = "No error detected",
                                              [CORRUPT] = "Data corruption detected",
                                              [NO_MEMORY] = "Allocation error : not enough memory",
                                              [TOO_LARGE] =
                                                  "Frame requires too much memory for decoding",
                                              [DICTIONARY] = "Dictionary mismatch",
                                              [UNKNOWN_PREFIX] = "Unknown frame descriptor"};
    return names[ZSTD_isError(result) ? (size_t)0 - result : 0];
}
