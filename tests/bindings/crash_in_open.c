/* Writes where nothing is, in open. */
#define ON_OPEN(count) ((void)(count), *(volatile int *)8 = 1)
#include "base.h"
