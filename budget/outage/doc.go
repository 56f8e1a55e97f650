// Package outage holds what budgets need when Redis, the store, is away, slow, or has lost what it said
// was safe. It knows neither limits nor holds: package budget says what an ending is and writes it.
//
//   - The store does not answer: [Health] pings it, so that a slow process does not blame it; [Circuit]
//     asks it no more for a while; [Shares] count what this process admits meanwhile; [Deferred] keeps the
//     endings of calls, and admissions without the store, in the journal, and writes them when it is back.
//   - The store restarted, or a replica without the latest writes became the primary: [Watcher] notices
//     and writes again what [Recent] remembers.
//   - The store lost all its data: [DataLoss] notices by an epoch in the store, and closes the limits for as
//     long as they may have counted something. A restored backup has an older epoch and is not a loss.
//   - The store's clock jumped: [StoreClock] notices. Limits and leases go by that clock.
package outage
