/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of graphs (tarn/graph.h). A *word* is eight bytes of a node's parameters that may be an
 * address. words.c collects the words that point into tarn's memory. remembered.c stores them.
 * places.c says what is at such an address now, judge.c how certain a fault is. graph.c has the
 * public calls, and makes the reports. */
#ifndef TARN_REPORT_GRAPH_H
#define TARN_REPORT_GRAPH_H

#include "base/inbox.h"
#include "base/tree.h"
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

static inline bool outside_is_page(const struct outside *outside)
{
    return outside->turn != 0;
}

/* A live block. */
struct live {
    tarn_block_info block;
    bool sleeps; /* its pool is suspended: there is no memory */
};

/* What a word referred to when it was remembered. */
struct known {
    uintptr_t value;
    struct referred *referred; /* NULL: no block was live there */
    /* Ends of that block at that time: of the requested bytes, and of the bytes rounded up to
     * the unit. */
    uintptr_t ends[2];
    struct outside outside; /* where no block was; `number` is 0 where nothing was */
    atomic_bool told;       /* a finding about it was reported in debug mode */
    uint32_t region, stack; /* of the block's allocation, as the trace has them; 0: unknown */
};

/* To whom an address belongs where no block is live. */
struct ground {
    bool mapped;
    int device; /* -1: not known */
    tarn_pool_id pool;
};

struct pool_facts {
    /* A graph, a capture or tarn_pool_hold() holds the pool: its free memory serves no other
     * pool. */
    bool held;
    bool suspended; /* it has no memory */
};

/* A word that may have another verdict although referred_changes stays. */
struct open {
    size_t index;
    bool weighed;
    tarn_graph_certainty weight; /* if `weighed`: what the judgement has found out for good */
};

/* What the last check of a remembered graph left, so that the next one looks only at what may have
 * changed. One check at a time uses it; a second check at the same time works without it. */
struct verdicts {
    /* referred_changes before the last check by number, which listed the open words; 0: there
     * was none. */
    uint64_t changes;
    struct open *open; /* pages_map; in the order of words */
    size_t open_count, open_room;
    uint64_t runs;          /* runs_changed when `grounds` were looked up */
    struct ground *grounds; /* pages_map; one for each known value, as `known_room` */
};

/* What is remembered of a graph. Once it is listed, only the fields that name a lock and atomic
 * fields change. It ends when the graph and everything made from it have ended. */
struct remembered {
    struct tree_node by_graph, by_number; /* remembered_lock */
    struct inbox_item gone;               /* in the inbox of records whose graphs have ended */
    uint64_t number;
    driver_graph graph;
    struct graph_words words; /* their names are `names` */
    struct known *known;      /* pages_map; sorted by value */
    size_t known_count, known_room;
    /* pages_alloc; one for each pool that the blocks are in; their sums: remembered_lock. */
    struct survey_graph *pools;
    size_t pool_count, pool_room;
    char *names; /* pages_map; of kernels, whose modules may go */
    size_t names_bytes;
    struct site captured;
    atomic_uint uses;         /* checks that read it */
    atomic_bool ended;        /* the graph is gone */
    struct verdicts verdicts; /* of the check that has taken them */
    bool taken;               /* remembered_lock */
};

/* Ends of the blocks that one node refers to. A value equal to one of them may be an end pointer,
 * although the next block starts there. */
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
    struct verdicts *kept;            /* of `before`; NULL: another check has them */
    uint64_t runs;                    /* runs_changed before the picture was taken */
    struct open open;                 /* the word that is judged */
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

/* What is where in memory; NULL with `status`: it could not be taken. */
struct picture *picture_made(tarn_status *status);
void picture_dropped(struct picture *picture); /* NULL is allowed */
/* The run around an address; NULL: there is none. */
const struct picture_run *run_around(const struct picture *picture, uintptr_t address);
/* To whom an address belongs where no block is live. A failure is in check->status. */
struct ground ground_of(struct check *check, uintptr_t value, const struct known *known);
struct pool_facts pool_facts(int device, tarn_pool_id id);

/* words.c. Lists the words that are in tarn's memory, and those that `before` remembers. */
tarn_status words_collect(driver_graph graph, const struct remembered *before,
                          struct graph_words *words);
void words_finish(struct graph_words *words);

/* remembered.c. Remembers a graph: takes over its words, lists it, and has the driver report its
 * end. `number` receives its number. */
tarn_status remember(driver_graph graph, struct graph_words *words, const struct site *site,
                     uint64_t *number);
/* Finds the record of a remembered graph, or with a `number` that is not 0 the record of that
 * number. NULL: there is none. The caller may use it until remembered_leave(). */
struct remembered *remembered_use(driver_graph graph, uint64_t number);
void remembered_leave(struct remembered *used);
struct known *remembered_at(const struct remembered *before, uintptr_t value);
/* Takes the verdicts of the last check, and gives them back. NULL: another check has them. */
struct verdicts *verdicts_take(struct remembered *used);
void verdicts_give(struct remembered *used);
/* Lists an open word. False if the host has no memory. */
bool verdicts_add(struct verdicts *verdicts, const struct open *open);

/* Writes what remembered graphs refer to, pool by pool, in the order of their numbers. Returns how
 * much there is: where that is more than `room`, the oldest graphs are left out. */
size_t remembered_sum_up(struct survey_graph *rows, size_t room);

/* judge.c. Judges one word, and adds it to the summary. */
tarn_graph_reference judge(struct check *check, size_t index);
/* Whether a remembered word keeps its verdict while referred_changes stays. */
bool judged_is_closed(const struct check *check, const tarn_graph_reference *reference);
void judge_sum_up(struct check *check);
void check_finish(struct check *check);

#endif
