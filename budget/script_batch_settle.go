package budget

// settleJoint joins runs of settle.lua by settle_many.lua, which list KEYS and ARGV.
func settleJoint(many script) *joint {
	const head, each = 24, 4 // arguments of a settle, and of each limit
	return &joint{
		many: many, keys: 10, own: 14, each: 2,
		key: func(r run) groupKey {
			var k groupKey
			for i := range k.keys {
				k.keys[i] = text(r.keys[i])
			}
			for i, n := range [...]int{0, 7, 8, 19, 21, 22, 23} {
				k.args[i] = r.args[n]
			}
			return k
		},
		limits: func(r run, list []limitArgs) []limitArgs {
			for i := range r.keys[11:] {
				a := r.args[head+each*i:]
				list = append(list, limitArgs{text(r.keys[11+i]), text(a[0]), text(a[2]), text(a[3])})
			}
			return list
		},
		add: func(g *group, keys []string, args []any) ([]string, []any) {
			first := g.runs[0]
			for _, i := range [...]int{0, 1, 2, 3, 5, 6, 7, 8, 9, 10} { // nobody is reconciled
				keys = append(keys, text(first.keys[i]))
			}
			for _, i := range [...]int{8, 7, 19, 21, 22, 23} {
				args = append(args, first.args[i])
			}
			args = append(args, len(g.limits), len(g.runs), g.each())
			keys, args = g.addLimits(keys, args)
			for _, r := range g.runs {
				args = append(args, r.args[1])
			}
			for i, r := range g.runs {
				args = append(args, r.args[2], r.args[4], r.args[9], r.args[20])
				args = append(args, r.args[10:19]...)
				for j, n := range g.numbersOf(i) {
					args = append(args, n, r.args[head+each*j+1])
				}
			}
			return keys, args
		},
	}
}
