/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the two files of chores share. */
#ifndef SOAK_CHORES_H
#define SOAK_CHORES_H

#include "soak.h"

/* Statuses that a call may give, as bits. */
#define MAY(status) (UINT64_C(1) << (status))

/* Whether a call succeeded. Complains of a failure that is neither among those of `also` nor one
 * that comes of short memory and of injected failures. */
bool went(const char *call, tarn_status status, uint64_t also);
#define OK(call) went(#call, call, 0)
#define OK_OR(call, also) went(#call, call, also)

/* No failure is injected from here on, until another worker asks for one: what must succeed is
 * tried again. */
void calm(void);

/* A stream of a device, with its driver's name. */
struct place {
    tarn_stream stream;
    void *native;
    int device;
};
struct place some_place(struct worker *worker, int device);

size_t some_bytes(struct worker *worker);

/* Gives a block to the mix, whichever thread frees it then; or frees it where the mix has no room.
 * Its words are written, so nothing may have its memory suspended later, or write to it. */
void leave(struct worker *worker, void *block, size_t size);

/* Waits for all work of a stream that does not capture. */
void settle(tarn_stream stream);

/* What the soak cannot begin without. */
void must(bool is_so, const char *what);

void do_handle(struct worker *worker);
void do_workspace(struct worker *worker);
/* A handle with a workspace inside a capture of the worker's own stream; and, once nothing runs
 * that graph any more, the end of it. */
void handle_in_capture(struct worker *worker, tarn_stream stream);
void handle_after_capture(tarn_stream stream);
/* Registers the soak's libraries; gives back what a worker's handles have; has nothing left of
 * handles but those of workers, and complains of more. */
void handles_start(void);
void handles_tidy(struct worker *worker);
void handles_rest(void);
void handles_check(void);

void do_share(struct worker *worker);
void do_pin(struct worker *worker);

void do_pool(struct worker *worker);
void do_scope(struct worker *worker);
void do_capture(struct worker *worker);
void do_suspend(struct worker *worker);
void do_checkpoint(struct worker *worker);
/* Blocks of the caller's allocator that pools have; 0 at rest. */
int64_t segments_of_allocators(void);
/* Graphs that the driver may have refused to destroy, ever. */
int64_t graphs_orphaned(void);

/* From mix.c: marks a block as one of the mix's. */
void mix_adopt(void *block, size_t size);

#endif
