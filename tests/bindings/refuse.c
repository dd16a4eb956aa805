/* Fails with the error number in the file `errno`, and works while there is none. */
#define ON_OPEN(count)                                                         \
    do {                                                                       \
        int error = number_in("errno");                                        \
        (void)(count);                                                         \
        if (error) {                                                           \
            snprintf(words, sizeof words, "the test says no %d", error);       \
            return error;                                                      \
        }                                                                      \
    } while (0)
#include "base.h"
