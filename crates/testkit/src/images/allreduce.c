/* Every rank gives a number of its own and gets the sum over all, eighty-one times, as a training with that many steps
   would. Each says where it ran and what it got: only a real exchange gives the sum, and only several nodes give several
   names. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    /* Ranks wait by polling. With more ranks than cores, one that waits should leave its core to one that does not: what
       Open MPI and MPICH call that. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", 0);
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double weight = 0;
    for (int step = 1; step <= 81; step++) {
        double mine = (double)(rank + 1) * step, all = 0;
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        weight += all;
    }
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    printf("rank %d of %d on %s: %.0f\n", rank, size, host, weight);
    fflush(stdout);
    /* Nobody leaves before all have spoken. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1) {
        /* A long run, for tests that end it. */
        for (;;) {
            MPI_Barrier(MPI_COMM_WORLD);
            usleep(100000);
        }
    }
    MPI_Finalize();
    return 0;
}
