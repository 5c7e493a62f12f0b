/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which devices there are; and a block on each, with the caller's current device left as it was. */
#include <stdio.h>
#include <tarn/tarn.h>

int main(void)
{
    tarn_device_properties at = {.size = sizeof at};
    size_t free_bytes, total;
    tarn_guard guard;
    void *block;
    int count;
    if (tarn_device_count_get(&count))
        goto fail;
    for (int device = 0; device < count; device++) {
        if (tarn_device_properties_get(device, &at) ||
            tarn_device_memory_get(device, &free_bytes, &total))
            goto fail;
        printf("%d: %s, %zu of %zu MiB free\n", device, at.name, free_bytes >> 20, total >> 20);
        if (tarn_device_guard_set(&guard, device) ||
            tarn_alloc_on(TARN_STREAM_CURRENT, 1 << 20, &block) || tarn_free(block) ||
            tarn_guard_restore(&guard))
            goto fail;
    }
    if (tarn_shutdown() == TARN_OK)
        return 0;
fail:
    fprintf(stderr, "%s\n", tarn_last_error());
    return 1;
}
