/* Lacks one function. */
#define NO_WORDS
#include "base.h"
