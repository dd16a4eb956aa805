/* Lacks the version function. */
#define NO_VERSION
#include "base.h"
