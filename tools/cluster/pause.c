/* Holds the namespaces of a pod and buries its orphans. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(0); }

static void bury(int signal) {
  while (waitpid(-1, 0, WNOHANG) > 0)
    ;
}

int main(void) {
  struct sigaction on_end = {.sa_handler = end};
  struct sigaction on_child = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  /* The first process of a namespace gets no default actions. */
  sigaction(SIGINT, &on_end, 0);
  sigaction(SIGTERM, &on_end, 0);
  sigaction(SIGCHLD, &on_child, 0);
  for (;;)
    pause();
}
