/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The oracle's book-keeping. It keeps a record of every block for ever, and two maps that say for
 * each byte which block had it last: one of addresses, one of physical memory, in which a piece and
 * an offset are one position. A free changes only the record. Whether a byte is free, used by late
 * work or taken is read from the record of its last owner.
 *
 * For the order of work, one last owner per byte is enough. A block is handed out over an earlier
 * owner's memory only if that owner's work has ended or belongs to the same stream. In the second
 * case the end that is reported at the new block's free is no earlier. */
#include "replay/oracle/oracle.h"

#include "replay/oracle/steps.h"
#include "table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A position of physical memory: the number of the piece, in order of first use, in the bits above
 * the offset. */
#define OFFSET_BITS 40
#define PIECE_LIMIT (UINT64_C(1) << (64 - OFFSET_BITS))
#define OFFSET_LIMIT (UINT64_C(1) << OFFSET_BITS)

struct record {
    struct oracle_block block;
    uint64_t end;                  /* end of its address range */
    uint64_t own_end, foreign_end; /* once free: when the last work on it ends */
    uint64_t digest;               /* of all its extents */
    bool live;
};

struct oracle {
    struct oracle_config config;
    struct record *records; /* by ticket; ticket 0 means nobody */
    size_t record_count, record_capacity;
    struct steps addresses, physical;
    struct table pieces;                    /* the driver's name of a piece to its number */
    uint64_t last_piece, last_piece_number; /* the last one looked up */
    size_t live;
    uint64_t divergences;
};

struct oracle *oracle_create(const struct oracle_config *config)
{
    struct oracle *oracle = calloc(1, sizeof *oracle);
    if (!oracle)
        return NULL;
    oracle->config = *config;
    oracle->record_capacity = 1024;
    oracle->record_count = 1;
    oracle->records = calloc(oracle->record_capacity, sizeof *oracle->records);
    if (!oracle->records || !steps_init(&oracle->addresses) || !steps_init(&oracle->physical)) {
        oracle_destroy(oracle);
        return NULL;
    }
    return oracle;
}

void oracle_destroy(struct oracle *oracle)
{
    if (!oracle)
        return;
    steps_finish(&oracle->addresses);
    steps_finish(&oracle->physical);
    table_finish(&oracle->pieces);
    free(oracle->records);
    free(oracle);
}

size_t oracle_live(const struct oracle *oracle)
{
    return oracle->live;
}

uint64_t oracle_divergences(const struct oracle *oracle)
{
    return oracle->divergences;
}

void oracle_report(struct oracle *oracle, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    oracle->divergences++;
    oracle->config.report(oracle->config.context, text);
}

/* Reports a live owner of a block's addresses. One report per block is enough. */
static void check_addresses(struct oracle *oracle, const struct record *record)
{
    struct steps_walk walk;
    if (!steps_walk_first(&oracle->addresses, record->block.address, record->end, &walk))
        return;
    do {
        const struct record *other = &oracle->records[walk.value];
        if (other->live) {
            oracle_report(oracle,
                          "block %" PRIu32 " at 0x%" PRIx64 " (%" PRIu64
                          " B) overlaps live block %" PRIu32 " at 0x%" PRIx64 " (%" PRIu64 " B)",
                          record->block.label, record->block.address, record->block.usable,
                          other->block.label, other->block.address, other->block.usable);
            return;
        }
    } while (steps_walk_next(&walk));
}

/* Checks the last owners of a stretch of physical memory. True if something was reported. */
static bool check_physical(struct oracle *oracle, const struct record *record, uint64_t start,
                           uint64_t end, uint64_t now)
{
    struct steps_walk walk;
    if (!steps_walk_first(&oracle->physical, start, end, &walk))
        return false;
    do {
        const struct record *other = &oracle->records[walk.value];
        if (other->live) {
            oracle_report(
                oracle,
                "block %" PRIu32 " at 0x%" PRIx64 " has physical memory of live block %" PRIu32
                " at 0x%" PRIx64 " (piece %" PRIu64 ", offset %" PRIu64 ")",
                record->block.label, record->block.address, other->block.label,
                other->block.address, walk.from >> OFFSET_BITS, walk.from & (OFFSET_LIMIT - 1));
            return true;
        }
        bool foreign = other->foreign_end > now;
        if (foreign || (other->own_end > now && other->block.stream != record->block.stream)) {
            oracle_report(oracle,
                          "block %" PRIu32 " on stream %" PRIu32
                          " has memory that work of freed block %" PRIu32
                          " uses on %s for another %" PRIu64 " ns",
                          record->block.label, record->block.stream, other->block.label,
                          foreign ? "a further stream" : "its own stream",
                          (foreign ? other->foreign_end : other->own_end) - now);
            return true;
        }
    } while (steps_walk_next(&walk));
    return false;
}

static uint64_t digest_add(uint64_t digest, const struct oracle_extent *extent)
{
    digest = (digest ^ extent->piece) * UINT64_C(0x9e3779b97f4a7c15);
    digest = (digest ^ extent->offset ^ digest >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return digest ^ extent->length;
}

/* The number of a piece; PIECE_LIMIT if there are too many pieces, or host memory is short. */
static uint64_t piece_number(struct oracle *oracle, uint64_t piece)
{
    if (piece != oracle->last_piece || oracle->pieces.count == 0) {
        const uint32_t *number =
            table_add(&oracle->pieces, piece, 0, (uint32_t)oracle->pieces.count);
        if (!number || *number >= PIECE_LIMIT)
            return PIECE_LIMIT;
        oracle->last_piece = piece;
        oracle->last_piece_number = *number;
    }
    return oracle->last_piece_number;
}

/* Asks for the extent at an address, at most to `end`. Returns what is wrong with it; NULL if
 * nothing is. */
static const char *extent_at(const struct oracle *oracle, uint64_t address, uint64_t end,
                             struct oracle_extent *extent)
{
    if (!oracle->config.extent(oracle->config.context, address, end - address, extent) ||
        extent->length == 0)
        return "is not mapped";
    if (!extent->accessible)
        return "is not accessible";
    if (extent->length > end - address)
        extent->length = end - address;
    if (extent->offset >= OFFSET_LIMIT - extent->length)
        return "lies in a piece that is larger than what is watched";
    return NULL;
}

/* Finds the physical memory of a new block, checks it and enters the block as its owner. False if
 * host memory is short. */
static bool take_physical(struct oracle *oracle, struct record *record, uint32_t ticket,
                          uint64_t now)
{
    bool reported = false;
    for (uint64_t address = record->block.address; address < record->end;) {
        struct oracle_extent extent;
        const char *wrong = extent_at(oracle, address, record->end, &extent);
        if (wrong) {
            oracle_report(oracle,
                          "block %" PRIu32 " at 0x%" PRIx64 " (%" PRIu64 " B): its byte %" PRIu64
                          " %s",
                          record->block.label, record->block.address, record->block.usable,
                          address - record->block.address, wrong);
            record->digest = 0; /* the block is not checked again */
            return true;
        }
        uint64_t piece = piece_number(oracle, extent.piece);
        if (piece == PIECE_LIMIT)
            return false;
        uint64_t start = piece << OFFSET_BITS | extent.offset;
        if (!reported)
            reported = check_physical(oracle, record, start, start + extent.length, now);
        if (!steps_assign(&oracle->physical, start, start + extent.length, ticket))
            return false;
        record->digest = digest_add(record->digest, &extent);
        address += extent.length;
    }
    return true;
}

/* Makes room for one more record. Invalidates pointers to records. */
static bool record_reserve(struct oracle *oracle)
{
    if (oracle->record_count < oracle->record_capacity)
        return true;
    size_t capacity = oracle->record_capacity * 2;
    struct record *grown =
        capacity > UINT32_MAX ? NULL : reallocarray(oracle->records, capacity, sizeof *grown);
    if (!grown)
        return false;
    oracle->records = grown;
    oracle->record_capacity = capacity;
    return true;
}

bool oracle_allocated(struct oracle *oracle, const struct oracle_block *block, uint64_t now,
                      uint32_t *ticket)
{
    *ticket = 0;
    uint64_t bytes = block->usable > block->requested ? block->usable : block->requested;
    if (block->address == 0 || bytes == 0 || bytes >= UINT64_MAX - block->address) {
        oracle_report(oracle,
                      "block %" PRIu32 " (%" PRIu64 " B asked for) is 0x%" PRIx64 " with %" PRIu64
                      " B: no block at all",
                      block->label, block->requested, block->address, block->usable);
        return true;
    }
    if (block->address % ORACLE_ALIGNMENT)
        oracle_report(oracle, "block %" PRIu32 " at 0x%" PRIx64 " is not aligned to %" PRIu64 " B",
                      block->label, block->address, ORACLE_ALIGNMENT);
    if (block->usable < block->requested)
        oracle_report(oracle,
                      "block %" PRIu32 " at 0x%" PRIx64 " has %" PRIu64 " B of the %" PRIu64
                      " B asked for",
                      block->label, block->address, block->usable, block->requested);

    if (!record_reserve(oracle))
        return false;
    uint32_t number = (uint32_t)oracle->record_count;
    struct record *record = &oracle->records[number];
    *record = (struct record){.block = *block, .end = block->address + bytes, .digest = 1};
    check_addresses(oracle, record);
    if (!take_physical(oracle, record, number, now) ||
        !steps_assign(&oracle->addresses, block->address, record->end, number))
        return false;
    record->live = true;
    oracle->record_count++;
    oracle->live++;
    *ticket = number;
    return true;
}

/* Reports it if a block that lived is no longer where it was. */
static bool check_unmoved(struct oracle *oracle, const struct record *record)
{
    uint64_t digest = 1;
    for (uint64_t address = record->block.address; address < record->end;) {
        struct oracle_extent extent;
        const char *wrong = extent_at(oracle, address, record->end, &extent);
        if (wrong) {
            oracle_report(oracle,
                          "live block %" PRIu32 " at 0x%" PRIx64 " (%" PRIu64
                          " B): its byte %" PRIu64 " %s any more",
                          record->block.label, record->block.address, record->block.usable,
                          address - record->block.address, wrong);
            return true;
        }
        digest = digest_add(digest, &extent);
        address += extent.length;
    }
    if (digest != record->digest && !oracle->config.compacts)
        oracle_report(oracle,
                      "live block %" PRIu32 " at 0x%" PRIx64 " (%" PRIu64
                      " B) has other physical memory than it was given",
                      record->block.label, record->block.address, record->block.usable);
    return digest == record->digest;
}

void oracle_freed(struct oracle *oracle, uint32_t ticket, uint64_t own_end, uint64_t foreign_end)
{
    if (ticket == 0)
        return;
    struct record *record = &oracle->records[ticket];
    bool moved = record->digest && !check_unmoved(oracle, record);
    record->live = false;
    if (moved && oracle->config.compacts)
        (void)take_physical(oracle, record, ticket, UINT64_MAX);
    record->own_end = own_end;
    record->foreign_end = foreign_end;
    oracle->live--;
}
