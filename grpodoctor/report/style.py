"""The style of the HTML report."""

CSS = """
:root{color-scheme:light dark;--paper:#f7f7f5;--card:#fff;--ink:#1d2129;--faint:#646b77;
--line:#e1e2e5;--code:#f0f1f3;--critical:#c0322b;--warning:#9a6400;--info:#2465b5;--good:#1f7a50}
@media (prefers-color-scheme:dark){:root{--paper:#14161a;--card:#1c1f25;--ink:#e6e8ec;
--faint:#9aa2af;--line:#31353d;--code:#262a32;--critical:#f0716b;--warning:#e0a73d;
--info:#6aa7f0;--good:#58c795}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;line-height:1.25;margin:2px 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:36px 0 12px}
h3{font-size:15px;margin:0 0 6px;overflow-wrap:anywhere}
h3 small{font-weight:400;color:var(--faint);white-space:nowrap}
p{margin:0 0 8px;overflow-wrap:anywhere}
.eyebrow,.facts{color:var(--faint)} .eyebrow{letter-spacing:.04em;margin:0}
.tally{font-weight:600} .sentence{font-size:17px;margin:12px 0} .damage{color:var(--warning)}
code,pre{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--code);border-radius:4px;padding:1px 4px;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:6px;padding:8px 10px;margin:4px 0 0;
white-space:pre-wrap;overflow-wrap:anywhere;max-height:420px;overflow-y:auto}
pre.prompt{color:var(--faint)}
article,figure{background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:14px 16px;margin:0 0 12px}
.overview{list-style:none;margin:12px 0;padding:0}
.overview li{margin:0 0 4px} .overview a{color:inherit} .overview small{color:var(--faint)}
.halves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:0 32px}
.halves>div{min-width:0}
.pictures+.halves,.table+.halves{margin-top:20px} .pictures+p{margin-top:10px}
td small{color:var(--faint)} td a{overflow-wrap:anywhere}
td a,td p{display:block;min-width:210px;margin:0}
a{color:var(--info)} .measure{white-space:nowrap}
.finding{border-left:4px solid var(--tone)}
.critical{--tone:var(--critical)} .warning{--tone:var(--warning)} .info{--tone:var(--info)}
.finding.resolved{border-left-style:dashed}
.good{--tone:var(--good)}
mark{color:inherit;border-radius:2px;
background:color-mix(in srgb,var(--critical) calc(var(--heat)*70%),transparent)}
section>h3{margin-top:18px} .halves .table+h3{margin-top:16px}
.badge{color:var(--tone);border:1px solid var(--tone);border-radius:99px;padding:0 8px;
font-size:12px;font-weight:600;white-space:nowrap}
.advice{margin-bottom:10px} .advice p{margin-bottom:4px}
.applicability{font-size:12px;color:var(--faint);border:1px solid var(--line);border-radius:99px;
padding:0 8px}
.references{color:var(--faint);font-size:13px;margin:10px 0 0;padding-left:18px}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:12px}
.pictures figure{margin:0;min-width:0}
.pictures.wide{grid-template-columns:minmax(0,1fr)} .wide figure{overflow-x:auto}
figcaption{font-weight:600}
.table{overflow-x:auto;margin:6px 0}
table{border-collapse:collapse;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:4px 18px 4px 0;border-bottom:1px solid var(--line)}
th{color:var(--faint);font-weight:500}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th.number{white-space:normal}
.codes code{display:inline-block;margin:0 4px 4px 0}
@media print{body{background:#fff} article,figure{break-inside:avoid}}
"""
