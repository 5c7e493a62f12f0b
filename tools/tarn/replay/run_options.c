/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads the values of options of one run. */
#include "replay/run_options.h"

#include "replay/crew.h"
#include "replay/replay.h"
#include "units.h"

#include <assert.h>

static_assert(REPLAY_MAX_REPEAT == 10000 && REPLAY_MAX_STREAMS == 256 && CREW_MAX == 1024 &&
                  REPLAY_MAX_SEED == 1000000000,
              "what the options say they want");

static bool take_count(const char *value, uint64_t most, uint32_t *count)
{
    uint64_t number;
    if (!units_parse_count(value, 1, most, &number))
        return false;
    *count = (uint32_t)number;
    return true;
}

bool run_take_memory(void *options, const char *value)
{
    return units_parse_memory(value, &((struct replay_options *)options)->device_memory);
}

bool run_take_lag(void *options, const char *value)
{
    double lag;
    if (!units_parse_number(value, 0, REPLAY_MAX_LAG, &lag))
        return false;
    ((struct replay_options *)options)->lag = (uint64_t)(lag * 1e6);
    return true;
}

bool run_take_repeat(void *options, const char *value)
{
    return take_count(value, REPLAY_MAX_REPEAT, &((struct replay_options *)options)->repeat);
}

bool run_take_deal_streams(void *options, const char *value)
{
    return take_count(value, REPLAY_MAX_STREAMS, &((struct replay_options *)options)->deal_streams);
}

bool run_take_deal_threads(void *options, const char *value)
{
    return take_count(value, CREW_MAX, &((struct replay_options *)options)->deal_threads);
}

bool run_take_vary(void *options, const char *value)
{
    return units_parse_count(value, 1, REPLAY_MAX_SEED, &((struct replay_options *)options)->vary);
}
