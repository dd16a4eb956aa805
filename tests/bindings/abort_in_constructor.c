/* Aborts while it is loaded. */
#define ON_LOAD abort()
#include "base.h"
