/* Leaves while it is loaded, as if all were well. */
#define ON_LOAD _exit(0)
#include "base.h"
