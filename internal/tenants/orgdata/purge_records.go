package orgdata

import (
	"context"
	"slices"

	"github.com/llmguard/llmguard/internal/tenants"
)

// records returns the org's records.
func (p *Purge) records() []tenants.Ref {
	now := p.Tenants.Snapshot()
	refs := now.Tenants[p.Org].Refs(p.Org)
	if now.Stops[p.Org] != nil {
		refs = append(refs, tenants.StopRef(p.Org))
	}
	return slices.Concat(refs, now.RaiseRefs(p.Org), now.Brakes[p.Org].Refs(p.Org))
}

// atOnce is how many records one write deletes.
const atOnce = 500

// removeRecords deletes all records except the org's own, which keeps it disabled until the
// end.
func (p *Purge) removeRecords(ctx context.Context, entry tenants.AuditEntry) error {
	refs := slices.DeleteFunc(p.records(), func(r tenants.Ref) bool { return r.Kind == tenants.KindOrg })
	for some := range slices.Chunk(refs, atOnce) {
		if err := p.note(ctx, entry, "org.purge.records", map[string]int{"records": len(some)}, some...); err != nil {
			return err
		}
	}
	return nil
}
