/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An AMD APU on the simulated libamdhip64. It is integrated, and HIP's own figures hold: what the
 * kernel says is available leaves out memory that the firmware gave the GPU
 * (ggml-org/llama.cpp#18159). */
#include "support/host.h"
#include "support/machine_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (1024 * MIB)

static tarn_device_properties begin(const char *card)
{
    tarn_device_properties properties = {.size = sizeof properties};
    CHECK(setenv("TARN_DRIVER", "hip", 1) == 0 && setenv("TARN_SIM_CARD", card, 1) == 0);
    machine_files_begin();
    machine_has(1, 3200);
    host_start_with(1, MEMORY);
    OK(tarn_device_properties_get(0, &properties));
    return properties;
}

static void an_apu_has_what_hip_says(void)
{
    size_t free_bytes = 0, total = 0;
    void *pinned = NULL, *none = NULL;
    tarn_device_properties apu = begin("apu");
    CHECK(apu.integrated && !apu.coherent && !apu.slice && !apu.mps && !apu.paged);
    CHECK(apu.capability_major == 11 && apu.capability_minor == 5);
    OK(tarn_device_memory_get(0, &free_bytes, &total));
    CHECK(free_bytes == MEMORY && total == MEMORY);
    tarn_stream stream = lease(0);
    void *block = alloc_on(stream, 500 * MIB);
    OK(tarn_pinned_alloc(stream, 100 * MIB, &pinned));
    GIVES(tarn_alloc_on(stream, 600 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!strstr(tarn_last_error(), "machine"));
    OK(tarn_free(pinned));
    OK(tarn_free(block));
    nothing_is_left(0);
    machine_files_end();
}

static void another_device_of_hip_is_not_integrated(void)
{
    tarn_device_properties plain = begin("orin"); /* one that has CUDA */
    CHECK(!plain.integrated && !plain.coherent && plain.capability_major == 9);
    machine_files_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(an_apu_has_what_hip_says),
        CHILD_TEST(another_device_of_hip_is_not_integrated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
