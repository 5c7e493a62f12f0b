/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks of captured graphs: does a graph use memory that was freed, or is somebody else's by now?
 *
 * A graph has the addresses of its capture. It keeps nothing alive except the pools that it holds
 * (pool.h). If a block was freed after the capture, a launch reads and writes what another block
 * may have by then, and nothing fails. tarn_graph_check() looks at what the nodes of a graph were
 * given and finds the addresses that lie in tarn's memory. tarn_graph_remember(), called at the end
 * of the capture, makes its answers certain: it notes which blocks the graph refers to, and when
 * they end. tarn_graph_launch() is a launch with a check before it.
 *
 * A kernel's parameters are numbers without a type. So a finding has a certainty, by these rules:
 *   TARN_GRAPH_CERTAIN   a copy, a fill, a free or a batch uses free memory; or one that was
 *                        remembered refers to a block that is gone, by a parameter of 8 bytes or
 *                        by a field of a larger one that is the whole parameter of another node,
 *                        and the value is the block's start
 *   TARN_GRAPH_LIKELY    a parameter of 8 bytes lies in free memory; or inside a remembered block
 *                        that is gone; or at its start, where that is also the end of another block
 *                        that the node refers to
 *   TARN_GRAPH_PERHAPS   anything else: a field of a structure, which may be padding or unused; or
 *                        a freed block of a pool that something else holds, which serves no other
 *                        pool
 * An import that was closed, and a page of a range that was decommitted, count as free memory, also
 * where another import, or the same page, is there again.
 * Memory of such a pool that was free when the graph was remembered is no finding: captures that
 * share a pool allocate and free there. It counts as unproven. A field of a structure that was
 * remembered is no finding where tarn has no memory, then and now.
 * A parameter that the kernel does not use looks like one that it uses; so does the end of a block,
 * without another address of it in the node, like the start of the next block. Addresses that a
 * kernel reads from memory are not seen. Nodes that cannot be looked at are counted in the summary,
 * and so are live blocks that may be others than at the capture. No graph with either is called
 * clean.
 *
 * The functions are thread-safe, and allowed while a stream captures. The graph must exist, and
 * nobody may change or destroy it during the call. None synchronises the device. Every function
 * may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER,
 * TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY, and
 * TARN_ERROR_NOT_SUPPORTED if the driver cannot list the nodes of a graph, as HIP before 6.0. */
#ifndef TARN_GRAPH_H
#define TARN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>
#include <tarn/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What lies at an address that a graph has. */
typedef enum tarn_graph_state {
    /* A live block, an import, or a committed page of a range; unless the graph was remembered,
     * perhaps another one than at the capture. */
    TARN_GRAPH_LIVE,
    TARN_GRAPH_HELD,   /* memory of a pool that the graph holds: its own, live or not */
    TARN_GRAPH_FREE,   /* free memory, or memory of a freed block that other streams still use */
    TARN_GRAPH_OTHERS, /* free memory of a pool that another graph, or a tarn_pool_hold(), holds */
    /* Another block, import or page than the remembered one, or one where none was. */
    TARN_GRAPH_CHANGED,
    /* Addresses of tarn without memory, as those of a suspended pool: a launch fails. */
    TARN_GRAPH_UNMAPPED
} tarn_graph_state;

/* How certain it is that this is a fault. */
typedef enum tarn_graph_certainty {
    TARN_GRAPH_NO_FINDING, /* not a fault */
    TARN_GRAPH_PERHAPS,    /* the value may be something else than an address in use */
    TARN_GRAPH_LIKELY,     /* it looks like one */
    TARN_GRAPH_CERTAIN     /* a launch uses memory that is not the graph's */
} tarn_graph_certainty;

/* The kind of a node that has addresses. */
typedef enum tarn_graph_node_kind {
    TARN_GRAPH_KERNEL,  /* a kernel */
    TARN_GRAPH_COPY,    /* a copy: parameter 0 is the target, 1 the source */
    TARN_GRAPH_FILL,    /* a memset */
    TARN_GRAPH_RELEASE, /* a free of the driver's pool */
    TARN_GRAPH_BATCH    /* operations on words of memory: the parameter is the operation's number */
} tarn_graph_node_kind;

/* One address that a graph has in tarn's memory. Only tarn creates this structure, so fields may be
 * added at its end. */
typedef struct tarn_graph_reference {
    size_t size;                    /* sizeof(tarn_graph_reference) in the library */
    tarn_graph_state state;         /* what lies there */
    tarn_graph_certainty certainty; /* that it is a fault */
    /* The number of the node, from 0, in the driver's order; the nodes of an embedded graph, and of
     * the bodies of a conditional node, follow the node that has them. */
    size_t node;
    unsigned depth;            /* in how many such graphs the node is; 0: in none */
    tarn_graph_node_kind kind; /* of the node */
    void *native;              /* the vendor's node */
    /* The name of the kernel, which may be mangled. It is "" if the node is no kernel, or if the
     * name is unknown. It is valid until the callback returns. */
    const char *kernel;
    unsigned parameter; /* its index */
    /* Bytes from the start of the parameter. If a copy or fill ends in other memory than it begins
     * in, it has a second reference, to its last byte: the bytes before that byte. */
    size_t offset;
    /* Of the whole parameter; for other nodes than kernels the bytes used from `address` on, 0 if
     * unknown. */
    size_t parameter_bytes;
    void *address; /* the value */
    /* The block: the remembered one, or else the live one; NULL: none is known. */
    void *block;
    size_t requested;  /* bytes of that block, as requested */
    tarn_tag tag;      /* of that block */
    int device;        /* of the memory; -1: not known */
    tarn_pool_id pool; /* of the memory */
    /* The call stack of tarn_graph_remember(), or of the end of the capture: "attention
     * (model.c:41) < step (train.c:112)"; "" where it is not known or this is no finding. */
    const char *remembered_at;
    const char *freed_at; /* the same of the free of the remembered block */
    /* The same of its allocation, if the trace had its call stack when the graph was remembered;
     * else "". */
    const char *allocated_at;
    /* The regions that it was allocated in, "step 3/layer 7", if the trace knew; else "". All texts
     * are valid until the callback returns. */
    const char *region;
} tarn_graph_reference;

/* What a check is to do. */
typedef struct tarn_graph_options {
    size_t size; /* sizeof(tarn_graph_options), set by the caller */
    bool all;    /* the callback also gets references that are no findings */
    /* A number of tarn_graph_remember(): checks what was remembered, without a look at the graph,
     * which may be destroyed while an executable made of it exists. `graph` is NULL then. */
    uint64_t remembered;
} tarn_graph_options;

/* The verdict on a graph. */
typedef enum tarn_graph_verdict {
    TARN_GRAPH_CLEAN,     /* no finding, and nothing was left out: `unseen` and `unproven` are 0 */
    TARN_GRAPH_UNKNOWN,   /* no finding, but not everything could be looked at or told apart */
    TARN_GRAPH_SUSPICIOUS /* there are findings */
} tarn_graph_verdict;

/* What a check has found. */
typedef struct tarn_graph_summary {
    size_t size;                     /* sizeof(tarn_graph_summary), set by the caller */
    tarn_graph_verdict verdict;      /* follows from the numbers below */
    bool remembered;                 /* tarn_graph_remember() was called for the graph */
    size_t nodes;                    /* all nodes, those of embedded graphs among them */
    size_t references;               /* addresses in tarn's memory */
    size_t certain, likely, perhaps; /* findings */
    /* Addresses in live blocks that may be others than at the capture, as the graph was not
     * remembered, or in memory of a held pool that was free then. Pools that the graph holds do not
     * count. */
    size_t unproven;
    size_t unseen;           /* the sum of the following, which were not looked at */
    size_t unseen_host;      /* functions of the host */
    size_t unseen_kernels;   /* kernels whose parameters the driver does not tell */
    size_t unseen_updatable; /* kernels whose parameters the device may change */
    /* Conditional nodes whose bodies the driver does not show, as CUDA before 13.2. */
    size_t unseen_conditional;
    /* Semaphores and other kinds, and nodes of which the driver did not tell enough, as older
     * runtimes of HIP of copies. */
    size_t unseen_other;
} tarn_graph_summary;

/* Checks a vendor's graph, not an executable: a CUgraph, which is a cudaGraph_t, or a hipGraph_t.
 * `options` may be NULL. `found` is called for each finding in the order of nodes, and may be NULL.
 * tarn holds no lock during the callback, which may call tarn, and must not throw. `summary` may be
 * NULL. The memory is looked at as it is during the call: other threads that allocate and free
 * meanwhile change the answer. Works for graphs of any origin. With `options->remembered`, as
 * before a launch, the call looks only at addresses with a finding, those that were in no block
 * when the graph was remembered, and pages of ranges, while since the last such check no block that
 * graphs refer to has ended, no import has begun or ended, and no pool was suspended or resumed.
 *
 * With TARN_DEBUG=graphs (debug.h), tarn remembers the graph of each capture that is ended by
 * tarn_capture_end() or tarn_capture_end_announced(), and a certain finding is reported once.
 *   TARN_ERROR_INVALID_ARGUMENT   `graph` is NULL or, as far as the driver can tell, not a graph;
 *                                 an unknown size or number; a graph and a number */
TARN_API tarn_status tarn_graph_check(void *graph, const tarn_graph_options *options,
                                      void (*found)(const tarn_graph_reference *reference,
                                                    void *user),
                                      void *user, tarn_graph_summary *summary);

/* Remembers the blocks that a graph refers to now, until the graph and every executable made of it
 * are destroyed, and watches them: their ends are noted, with the call stack. Call it when the
 * capture has ended and its inputs still live; or just before the capture ends, with the graph that
 * tarn_capture_state_get() returns. `number` (may be NULL) receives a number that names what is
 * remembered when the graph itself is gone. A second call replaces what was remembered for checks
 * of the graph; a change of the graph's nodes drops it.
 *
 * The free of a watched block takes the slow path, and some microseconds for the stack. A block
 * that tarn_pool_restore() brings back counts as the same. What is freed and allocated again is
 * another block. A suspended pool has no memory; after the resume its blocks are what they were.
 *   TARN_ERROR_INVALID_ARGUMENT   as tarn_graph_check()
 *   TARN_ERROR_NOT_SUPPORTED      also if the driver cannot report the end of a graph */
TARN_API tarn_status tarn_graph_remember(void *graph, uint64_t *number);

/* Checks a remembered graph as tarn_graph_check() does with its number, and then launches an
 * executable of it on a stream. `executable` is a CUgraphExec, which is a cudaGraphExec_t, or a
 * hipGraphExec_t; on the host device it is the graph. It stays the caller's, and must exist.
 * `number` is that of tarn_graph_remember() for the graph that the executable was made of. The
 * caller says it, because no driver tells of an executable which graph it was made of. `found` is
 * called for each finding, before the launch, and may be NULL. The launch takes place whatever was
 * found: to refuse one, call tarn_graph_check() and the vendor's launch.
 *
 * The work runs after what is queued on the stream, and the call does not wait for it. If the call
 * fails before the driver was asked to launch, nothing was launched. Not for a stream that
 * captures: the driver would end its capture. Other streams may capture.
 *   TARN_ERROR_INVALID_ARGUMENT   `executable` is NULL, or an unknown number
 *   TARN_ERROR_INVALID_STREAM     an unknown stream, or the per-thread stream of another thread
 *   TARN_ERROR_CAPTURE            the stream captures */
TARN_API tarn_status tarn_graph_launch(void *executable, uint64_t number, tarn_stream stream,
                                       void (*found)(const tarn_graph_reference *reference,
                                                     void *user),
                                       void *user);

#ifdef __cplusplus
}
#endif
#endif
