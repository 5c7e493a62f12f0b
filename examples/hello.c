/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered allocation, on whatever driver is there: a GPU's, or the host device. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

int main(void)
{
    tarn_stream one, two;
    void *first, *again, *other;

    must(tarn_stream_lease(0, 0, &one)); /* device 0, priority 0 */
    must(tarn_stream_lease(0, 0, &two));
    must(tarn_alloc_on(one, 3 << 20, &first));
    /* Launch kernels that use `first` on stream `one` here; tarn_stream_native_get() gives the
     * cudaStream_t. */
    must(tarn_free(first)); /* waits for nothing: later work of `one` runs after its earlier work */
    must(tarn_alloc_on(one, 3 << 20, &again));
    must(tarn_alloc_on(two, 3 << 20, &other));
    printf("same stream: %s memory; another stream: %s memory\n",
           again == first ? "the same" : "other", other == first ? "the same" : "other");
    must(tarn_free(again));
    must(tarn_free(other));
    must(tarn_shutdown());
    return 0;
}
