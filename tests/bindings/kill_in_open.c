/* Kills its own process in open. */
#define ON_OPEN(count) ((void)(count), raise(SIGKILL))
#include "base.h"
