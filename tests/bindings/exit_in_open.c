/* Leaves in open, as if all were well. */
#define ON_OPEN(count) _exit((count) < 0)
#include "base.h"
