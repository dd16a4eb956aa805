/* Gives the master of one pty and the slave of another. */
#define DEAF
#include "base.h"
