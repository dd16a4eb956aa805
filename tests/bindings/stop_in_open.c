/* Stops its own process in open. */
#define ON_OPEN(count) ((void)(count), raise(SIGSTOP))
#include "base.h"
