/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of cards. libnvidia-ml has a copy of this file. */
#include "cuda/card.h"

#include <stdlib.h>
#include <string.h>

static const struct sim_card plain = {.name = "", .device = "", .major = 9, .minor = 0};

static const struct sim_card cards[] = {
#define X(id, text, first, second, ...) \
    {.name = #id, .device = text, .major = first, .minor = second, __VA_ARGS__},
    SIM_CARD_LIST(X)
#undef X
};

const struct sim_card *sim_card(void)
{
    const char *name = getenv("TARN_SIM_CARD");
    for (size_t i = 0; name && i < sizeof cards / sizeof *cards; i++)
        if (strcmp(cards[i].name, name) == 0)
            return &cards[i];
    return &plain;
}
