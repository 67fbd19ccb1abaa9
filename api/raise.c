/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors: see raise.h.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api/raise.h"

#define TEXTS_MAX 64

/* A code is never taken back by MPI, so each text gets one, and keeps it. */
static struct {
    int error_class, code;
    char text[MPI_MAX_ERROR_STRING];
} known[TEXTS_MAX];
static int texts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool api_mpi_is_up(void)
{
    int begun = 0, ended = 0;

    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

/* The code of that text; where there are too many, of the last one of the class, which has that text from now on. The
 * class itself if MPI gives no code. */
static int code_of(int error_class, const char *text)
{
    int last = -1;

    for (int i = 0; i < texts; i++) {
        if (known[i].error_class == error_class) {
            last = i;
            if (0 == strcmp(known[i].text, text)) {
                return known[i].code;
            }
        }
    }
    if (texts < TEXTS_MAX) {
        if (MPI_SUCCESS != MPI_Add_error_code(error_class, &known[texts].code)) {
            return error_class;
        }
        known[texts].error_class = error_class;
        last = texts++;
    }
    if (last < 0) {
        return error_class;
    }
    strcpy(known[last].text, text);
    MPI_Add_error_string(known[last].code, text);
    return known[last].code;
}

/* MPI limits the length of a text. */
static int code_with_text(int error_class, const char *text)
{
    char fitting[MPI_MAX_ERROR_STRING];
    int code;

    snprintf(fitting, sizeof(fitting), "%s", text);
    pthread_mutex_lock(&lock);
    code = code_of(error_class, fitting);
    pthread_mutex_unlock(&lock);
    return code;
}

int api_raise(MPI_Comm comm, int error_class, const char *text)
{
    int code;

    if (!api_mpi_is_up()) {
        return MPI_ERR_OTHER;
    }
    if (MPI_COMM_NULL == comm) {
#if MPI_VERSION >= 4
        comm = MPI_COMM_SELF;
#else
        comm = MPI_COMM_WORLD;
#endif
    }
    code = NULL == text ? error_class : code_with_text(error_class, text);
    MPI_Comm_call_errhandler(comm, code);
    return code;
}
