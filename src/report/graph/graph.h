/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs (tarn/graph.h). A *word* is eight bytes of a node's parameters that may be an
 * address. words.c collects the words that point into tarn's memory. remembered.c stores them.
 * places.c says what is at such an address now, judge.c how certain a fault is. graph.c has the public
 * calls, and makes the reports. */
#ifndef TARN_REPORT_GRAPH_H
#define TARN_REPORT_GRAPH_H

#include "memory/pool/referred.h"
#include "memory/watch/picture.h"
#include "report/survey.h"

#include <tarn/graph.h>

/* The words of one graph, in the order of nodes, and what its walk has counted. */
struct graph_words {
    struct driver_word *list; /* pages_map */
    size_t count, room;
    uint64_t hash; /* of all words of the graph, also those that are not in `list` */
    struct driver_walk walk;
};

/* Memory that is in no block: an import, or a committed page of a range. */
struct outside {
    uint64_t number, turn; /* no other has both; a page has another turn after each decommit */
    uintptr_t end;
};

/* A live block. */
struct live {
    tarn_block_info block;
    bool sleeps; /* its pool is suspended: there is no memory */
};

/* What a word referred to when it was remembered. */
struct known {
    uintptr_t value;
    struct referred *referred; /* NULL: no block was live there */
    uintptr_t ends[2];         /* behind that block as it was then: of the request, and of the unit
                                  that it is rounded up to */
    struct outside outside;    /* where no block was; `number` is 0 where nothing was */
    atomic_bool told;          /* a finding about it was reported in debug mode */
    uint32_t region, stack;    /* of the block's allocation, as the trace has them; 0: unknown */
};

/* What is remembered of a graph. Once it is listed, only the fields that name a lock and atomic
 * fields change. It ends when the graph and everything made from it have ended. */
struct remembered {
    struct remembered *next; /* remembered_lock */
    uint64_t number;
    driver_graph graph;
    struct graph_words words; /* their names are `names` */
    struct known *known;      /* pages_map; sorted by value */
    size_t known_count, known_room;
    char *names; /* pages_map; of kernels, whose modules may go */
    size_t names_bytes;
    struct site captured;
    atomic_uint uses;           /* checks that read it */
    bool has_pages;             /* it refers to pages of ranges, which change unnoticed */
    bool replaced;              /* remembered_lock: a newer one of its graph is listed */
    atomic_bool ended;          /* the graph is gone */
    uint64_t quiet;             /* remembered_lock: a check found nothing when referred_changes had
                                   this value, and finds nothing while it has; 0: unknown */
    tarn_graph_summary summary; /* remembered_lock: the summary of that check */
};

/* Addresses behind the blocks that one node refers to. A value that is one may be an end pointer,
 * which is also the start of the next block. */
struct node_ends {
    uintptr_t *list; /* pages_map; sorted */
    size_t count, room;
    size_t number; /* of the node, + 1; 0: of none yet */
};

/* Values that a node has where they can only be addresses: what another node has in a structure is
 * an address too, then. */
struct confirmation {
    uintptr_t value;
    size_t number; /* of the first such node */
    bool by_more;  /* another node has the value so, too */
};

struct confirmations {
    struct confirmation *list; /* pages_map; sorted by value */
    size_t count, room;
    bool made;
};

/* What a check works with. */
struct check {
    driver_graph graph;
    struct graph_words words;         /* of the graph as it is; not used where `by_memory` */
    const struct graph_words *judged; /* these words, or the remembered ones */
    const struct remembered *before;  /* NULL: the graph was not remembered */
    struct picture *picture;          /* taken when it is first needed */
    struct node_ends ends;            /* of the node that was asked for last */
    struct confirmations confirmed;   /* collected when they are first needed */
    tarn_status status;               /* why one of these could not be made */
    tarn_graph_summary summary;
};

/* places.c. The live block around an address; leaves the last error alone. What is there where no
 * block is. The end of either; 0: neither is there. */
bool live_at(uintptr_t value, struct live *live);
bool outside_at(uintptr_t value, struct outside *outside);
uintptr_t memory_end(uintptr_t value);

/* words.c. Lists the words that are in tarn's memory, and those that `before` remembers. */
tarn_status words_collect(driver_graph graph, const struct remembered *before,
                          struct graph_words *words);
void words_finish(struct graph_words *words);

/* remembered.c. Remembers a graph: takes over its words, lists it, and has the driver report its
 * end. `number` receives its number. */
tarn_status remember(driver_graph graph, struct graph_words *words, const struct site *site,
                     uint64_t *number);
/* Finds what is remembered of a graph; with a `number` that is not 0, of the one with that number.
 * NULL: nothing. The caller may use it until remembered_leave(). */
struct remembered *remembered_use(driver_graph graph, uint64_t number);
void remembered_leave(struct remembered *used);
struct known *remembered_at(const struct remembered *before, uintptr_t value);
/* Whether a check would find nothing, because nothing has changed since one did. Then `summary`
 * receives that one's. */
bool remembered_is_quiet(const struct remembered *used, tarn_graph_summary *summary);
void remembered_found_nothing(struct remembered *used, uint64_t changes,
                              const tarn_graph_summary *summary);

/* Writes what remembered graphs refer to, pool by pool, in the order of their numbers; of each
 * graph at most 16 pools. Returns how much there is: where that is more than `room`, the oldest
 * graphs are left out. */
size_t remembered_sum_up(struct survey_graph *rows, size_t room);

/* judge.c. What is where in memory; NULL with `status`: it could not be taken. */
struct picture *picture_made(tarn_status *status);
void picture_dropped(struct picture *picture); /* NULL is allowed */
/* The run around an address; NULL: there is none. */
const struct picture_run *run_around(const struct picture *picture, uintptr_t address);

/* judge.c. Judges one word, and adds it to the summary. */
tarn_graph_reference judge(struct check *check, size_t index);
void judge_sum_up(struct check *check);
void check_finish(struct check *check);

#endif
