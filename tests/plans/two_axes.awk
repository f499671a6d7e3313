# Makes a plan of two axes from two of one axis over the same graph and two devices: awk -f two_axes.awk INNER.plan OUTER.plan. Every device becomes two,
# which share what OUTER gives it as INNER says. Where both split the same loop INNER gives way.
function op_of(line) {
    match(line, /[0-9]+ /)
    return substr(line, RSTART, RLENGTH) + 0
}
function factor_of(line) {
    return match(line, /\[-?[0-9]+/) ? substr(line, RSTART + 1, RLENGTH - 1) : -1
}
function get(which, i) {
    return (which, i) in factor ? factor[which, i] : -1
}
function print_factors(   i, inner, outer) {
    for (i = 1; i <= last; i++) {
        outer = get(2, i)
        inner = get(1, i) == outer ? -1 : get(1, i)
        if (inner >= 0 || outer >= 0)
            print "  op " i " {factor=[" outer ", " inner "]}"
    }
}
FNR == 1 { file++ }
/^  op / {
    factor[file, op_of($0)] = factor_of($0)
    last = op_of($0) > last ? op_of($0) : last
    next
}
file == 1 { next }
/^plan / { sub(/time=[^,]*, bound=[^,]*, /, "") }
/^  device / { print; sub(/name="/, "name=\"beside_") }
/^  stage / { sub(/\[.*\]/, "[0, 1, 2, 3]") }
/^    axis / { print; sub(/name="[^"]*"/, "name=\"inner\"") }
/^}/ { print_factors() }
{ print }
