/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors to the user, whose texts are those of conf/help.def.
 */
#include "mca/coll/gpusym/conf/help.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/log.h"

/* Never called: lets the compiler compare every text with the types that the list promises. */
static inline __attribute__((format(printf, 1, 2))) void check_format(const char *format, ...)
{
    (void) format;
}
#define GPUSYM_HELP(topic, types, names, text) GPUSYM_HELP_CHECK(__LINE__, types, names, text)
#define GPUSYM_HELP_CHECK(line, types, names, text) GPUSYM_HELP_CHECK_(line, types, names, text)
#define GPUSYM_HELP_NAMES(...) __VA_ARGS__
#define GPUSYM_HELP_CHECK_(line, types, names, text)              \
    static inline __attribute__((unused)) void check_##line types \
    {                                                             \
        check_format(text, GPUSYM_HELP_NAMES names);              \
    }
#include "mca/coll/gpusym/conf/help.def"

static const struct {
    const char *topic;
    const char *text;
} help[] = {
#define GPUSYM_HELP(topic, types, names, text) {topic, text},
#include "mca/coll/gpusym/conf/help.def"
};

static const char *help_text(const char *topic)
{
    for (size_t i = 0; i < sizeof(help) / sizeof(help[0]); ++i) {
        if (0 == strcmp(help[i].topic, topic)) {
            return help[i].text;
        }
    }
    return NULL;
}

void coll_gpusym_help(const char *topic, ...)
{
    const char *text = help_text(topic);
    va_list ap;

    if (NULL == text) {
        gpusym_help("(no text for \"%s\")\n", topic);
        return;
    }
    va_start(ap, topic);
    gpusym_help_list(text, ap);
    va_end(ap);
}

bool coll_gpusym_is_news(const char *text, char *last, size_t size)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    const bool news = 0 != strncmp(last, text, size - 1);
    snprintf(last, size, "%s", text);
    pthread_mutex_unlock(&lock);
    return news;
}
