/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of cards. Each simulated library has a copy of this file. */
#include "common/card.h"

#include <stdlib.h>
#include <string.h>

static const struct sim_card plain = {.name = "", .device = "", .major = 9, .minor = 0};

static const struct sim_card cards[] = {
#define X(id, text, first, second, ...) \
    {.name = #id, .device = text, .major = first, .minor = second, __VA_ARGS__},
    SIM_CARD_LIST(X)
#undef X
};

static const struct sim_card *card_of(bool amd)
{
    const char *name = getenv("TARN_SIM_CARD");
    for (size_t i = 0; name && i < sizeof cards / sizeof *cards; i++)
        if (cards[i].amd == amd && strcmp(cards[i].name, name) == 0)
            return &cards[i];
    return &plain;
}

bool sim_card_is(const char *name)
{
    size_t i = 0;
    while (i < sizeof cards / sizeof *cards && strcmp(cards[i].name, name) != 0)
        i++;
    return i < sizeof cards / sizeof *cards;
}

const struct sim_card *sim_card(void)
{
    return card_of(false);
}

const struct sim_card *sim_card_amd(void)
{
    return card_of(true);
}
