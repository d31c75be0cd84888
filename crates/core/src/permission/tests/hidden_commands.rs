//! Deny and ask rules for shell commands that a text hides.

use super::*;

#[test]
fn denied_commands_are_found_inside_other_commands() {
    let rules = permissions(&["Bash"], &[], &["Bash(rm *)"]);
    for command in [
        "rm -rf /",
        "rm",
        "/bin/rm x",
        "RM x",
        "r\\m x",
        "r''m x",
        "\"rm\" x",
        "cargo x && rm -rf /",
        "cargo x;rm y",
        "cargo x|rm",
        "cargo x\nrm y",
        "cargo x & rm y",
        "cargo $(rm y)",
        "cargo \"$(rm y)\"",
        "cargo `rm y`",
        "cargo <(rm y)",
        "echo $(echo \")\"; rm x)",
        "echo \"$(r''m x)\"",
        "(rm x)",
        "{ rm x; }",
        "A=1 rm x",
        "env A=1 rm x",
        "sudo -u me rm x",
        "sh -c 'rm x'",
        "bash -lc \"cd / && rm x\"",
        "sh -c 'sh -c \"rm x\"'",
        "find . -exec rm {} +",
        "find . -name x | xargs rm",
        "$RM x",
        "r$X y",
        "/bin/r? x",
        "r{m,} x",
        "{rm,-rf,x}",
        "2>/dev/null rm x",
        ">&2 rm x",
        "</dev/null rm x",
        "if true; then rm x; fi",
        "! rm x",
        "python3 -c 'import os; os.system(\"rm x\")'",
        "eval \"r\"\"m x\"",
        "cat << EOF | sh\nrm x\nEOF",
        "rm\u{a0}x",
        "x\0",
    ] {
        assert_eq!(of_command(&rules, command), DENIED("Bash(rm *)"), "{command:?}");
    }
    for command in [
        "git rm x",
        "echo rm",
        "cargo x && ls",
        "ls -rm",
        "echo 'rm x'",
        "git commit -m 'rm x; y'",
        "rmdir x",
    ] {
        assert_eq!(of_command(&rules, command), ToolVerdict::Allow, "{command:?}");
    }
    let hidden = format!("{} rm x", "echo $(true) ".repeat(2_000));
    assert_eq!(of_command(&rules, &hidden), DENIED("Bash(rm *)"));
}

/// Each text runs a command that the rule names, in bash or in zsh. The shell recognises the command although the text
/// looks different at first.
#[test]
fn denied_commands_are_found_in_every_form() {
    let cases = [
        // Only NAME=, NAME+= and NAME[…]= are assignments.
        ("Bash(rm *)", "./a=b/../../bin/rm -rf x"),
        ("Bash(rm *)", "/tmp/a=b/rm x"),
        ("Bash(rm *)", "A=1 ./b=c/rm x"),
        ("Bash(rm *)", "A+=1 rm x"),
        ("Bash(rm *)", "A[0]=1 rm x"),
        ("Bash(rm *)", "A[1 + 1]=1 rm x"),
        ("Bash(rm *)", "A='b c' _1=\"d\" rm x"),
        ("Bash(rm *)", "A=$B rm x"),
        ("Bash(rm *)", "A=$(B) rm x"),
        ("Bash(rm *)", "A= rm x"),
        ("Bash(*=* x)", "'A'=1 x"),
        ("Bash(*=* x)", "A\\=1 x"),
        ("Bash(*=* x)", "1=2 x"),
        ("Bash(rm x)", "größe=1 rm x"),
        ("Bash(rm x)", "1=2 B=3 rm x"),
        ("Bash(rm *)", "=rm x"),
        ("Bash(rm *)", "sudo =rm x"),
        // Words that precede a command.
        ("Bash(rm *)", "env A=b rm x"),
        ("Bash(rm *)", "command -p rm x"),
        ("Bash(rm *)", "\\rm x"),
        ("Bash(rm *)", "'r'\"\"m x"),
        ("Bash(rm *)", "! rm x"),
        ("Bash(rm *)", "time -p rm x"),
        ("Bash(rm *)", "/usr/bin/time -p rm x"),
        ("Bash(rm *)", "- rm x"),
        ("Bash(rm *)", "noglob rm x"),
        ("Bash(rm *)", "repeat 2 rm x"),
        ("Bash(rm *)", "coproc rm x"),
        ("Bash(rm *)", "if true; then ! time rm x; fi"),
        ("Bash(git push)", "{ git push; }"),
        ("Bash(git push)", "{ git push }"),
        ("Bash(git push)", "sleep 1 &! git push"),
        // Redirections.
        ("Bash(rm x)", "2>&1 rm x"),
        ("Bash(rm x)", ">|f rm x"),
        ("Bash(rm x)", "<>f rm x"),
        ("Bash(rm x)", "&>f rm x"),
        ("Bash(rm x)", "rm >f x"),
        ("Bash(rm x)", "{fd}>f rm x"),
        ("Bash(rm x)", ">! f rm x"),
        ("Bash(rm x)", ">>! f rm x"),
        ("Bash(rm x)", ">\u{a0} rm x"),
        ("Bash(rm 2)", "rm \"2\">f"),
        ("Bash(rm 2)", "rm \\2>f"),
        // Comments, which may contain quotes.
        ("Bash(rm x)", "ls # don't\nrm x # don't"),
        ("Bash(git push)", "git push # now"),
        ("Bash(git push)", "ls;#'\ngit push;#'"),
        ("Bash(git push)", "ls # a; git push"),
        // Quotes, which bash and sh read differently.
        ("Bash(rm x)", "echo $'\\''; rm x #'"),
        ("Bash(rm *)", "echo \"${x#'\"'}\"; rm x; echo \"${x#'\"'}\""),
        ("Bash(rm *)", "$'r\\x6d' x"),
        // Commands in other commands.
        ("Bash(git push)", "echo \"$(git push 2>&1)\""),
        ("Bash(git push)", "echo \"`git push 2>/dev/null`\""),
        ("Bash(git push)", "echo \"$(git 2>f push)\""),
        ("Bash(git push)", "echo \"$(git \\\npush)\""),
        ("Bash(git push)", "echo \"$(git push # now\n)\""),
        ("Bash(git push)", "cat <(git push)"),
        ("Bash(git push)", "cat =(git push)"),
        ("Bash(git push)", "tee >(git push)"),
        ("Bash(git push)", "cat <<EOF\n$(git push)\nEOF"),
        ("Bash(git push)", "bash <<'EOF'\nit's\ngit push\nEOF"),
        ("Bash(git push)", "bash <<< 'git push'"),
        ("Bash(git push)", "eval git '>f' push"),
        ("Bash(git push)", "eval echo ';git' push"),
        ("Bash(git push)", "eval git push '# now'"),
        ("Bash(git push)", "command eval git '>f' push"),
        ("Bash(git push)", "ssh host git '>f' push"),
        ("Bash(rm -rf *)", "/bin/(rm) -rf x"),
        ("Bash(rm -rf *)", "sudo (/bin/r)m -rf x"),
        ("Bash(rm x)", "ls *(e:'rm x':)"),
        ("Bash(rm x)", "ls f(e+'rm x'+)"),
        ("Bash(rm *)", "alias l='rm x'; l"),
        ("Bash(rm -rf *)", "alias l=rm\nl -rf x"),
        ("Bash(rm *)", "EDITOR=x env EDITOR=rm git commit"),
        // Text that another command runs.
        ("Bash(rm *)", "echo 'rm x' | sh"),
        ("Bash(rm *)", "echo rm x | tee f | sudo /bin/bash -s"),
        ("Bash(rm *)", "echo rm x |& . /dev/stdin"),
        ("Bash(rm *)", "echo 'os.system(\"rm x\")' | python3 -"),
        ("Bash(git push *)", "echo push | xargs git"),
        ("Bash(git push *)", "echo push | sudo xargs git"),
        ("Bash(git push *)", "echo push origin | xargs -n 2 git -C ."),
        ("Bash(git push *)", "echo push | xargs -I % git % origin"),
        ("Bash(git push *)", "echo push | xargs -n 1 -0I % git % origin"),
        ("Bash(git push *)", "parallel git ::: push"),
        ("Bash(rm *)", "echo rm x | xargs sudo"),
        ("Bash(rm *)", "echo 'rm x' | while true; do sh; done"),
        ("Bash(rm *)", "python3.12 -c 'import os; os.system(\"rm x\")'"),
    ];
    let missed: Vec<_> = cases
        .into_iter()
        .filter(|(rule, command)| of_command(&permissions(&["Bash"], &[], &[rule]), command) != DENIED(rule))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Deny rules do not match more than they have to: an agent needs these commands every day.
#[test]
fn denied_commands_are_not_found_in_arguments_and_comments() {
    let cases = [
        ("Bash(rm *)", "A=rm cargo test"),
        ("Bash(rm *)", "cargo test # rm x"),
        ("Bash(git push *)", "# git push comes later\ncargo test"),
        ("Bash(rm *)", "cargo test --features=rm"),
        ("Bash(rm *)", "ls *.rs | xargs -0 -n 5 grep -i rmdir"),
        ("Bash(git push *)", "git log | xargs git show"),
        ("Bash(rm *)", "ls | xargs"),
        ("Bash(rm *)", "grep 'rm x' f | sed -n 1,5p"),
        ("Bash(rm *)", "grep 'rm x' f | python3 -m json.tool"),
        ("Bash(rm *)", "echo \"${HOME} rm x\""),
        ("Bash(rm *)", "grep '(rm x)' f"),
        ("Bash(rm *)", "find . \\( -name a -o -name b \\)"),
        ("Bash(rm *)", "A=$B cargo test"),
        ("Bash(rm *)", "sh -c 'echo rm' && eval 'echo rm'"),
        ("Bash(rm *)", "a=(1 2); ls"),
        ("Bash(rm *)", "if(true) then ls; fi"),
        ("Bash(rm *)", "test a = b && ls"),
        ("Bash(rm *)", "cargo test 2>&1 | tail -5"),
        ("Bash(rm *)", "env A=1 cargo test"),
        ("Bash(git push *)", "sudo docker run -v a:b image 'git status'"),
    ];
    let found: Vec<_> = cases
        .into_iter()
        .filter(|(rule, command)| {
            of_command(&permissions(&["Bash"], &[], &[rule]), command) != ToolVerdict::Allow
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Ask and deny rules for `git push` also match if options such as `-C .` precede the subcommand.
#[test]
fn options_before_a_subcommand_do_not_evade_rules() {
    let asks =
        permissions(&["Bash(git *)", "Bash(cargo *)"], &["Bash(git push *)", "Bash(cargo publish)"], &[]);
    for command in [
        "git push origin main",
        "git -C . push origin main",
        "git -c x=y push",
        "git --no-pager push",
        "git --no-pager -C . -c x=y --git-dir=.git push -f",
        "git -C -c x=y push",
        "/usr/bin/git -C . push",
        "ls && git -C . push",
        "sh -c 'git --no-pager push'",
        "git -C $DIR push",
        "cargo --offline publish",
        "cargo +nightly publish",
    ] {
        assert_eq!(of_command(&asks, command), ToolVerdict::Ask, "{command:?}");
    }
    for command in [
        "git status",
        "git -C . status",
        "git commit -m push",
        "git log --grep push",
        "git stash push",
        "cargo --offline test",
        "cargo publish --dry-run",
    ] {
        assert_eq!(of_command(&asks, command), ToolVerdict::Allow, "{command:?}");
    }
    let denies = permissions(&["Bash"], &[], &["Bash(git push --force *)", "Bash(kubectl delete *)"]);
    for (command, rule) in [
        ("git push -q --force", "Bash(git push --force *)"),
        ("git -C . push -o ci.skip --force origin", "Bash(git push --force *)"),
        ("kubectl --context prod delete pod x", "Bash(kubectl delete *)"),
    ] {
        assert_eq!(of_command(&denies, command), DENIED(rule), "{command:?}");
    }
    assert_eq!(of_command(&denies, "git push origin main"), ToolVerdict::Allow);
    // An allow rule does not match if options that it does not contain precede the subcommand.
    let narrow = permissions(&["Bash(git status)"], &[], &[]);
    assert_eq!(of_command(&narrow, "git -C . status"), ToolVerdict::Ask);
}

/// The work grows with the length of a command, and not with the number of ways to read it.
#[test]
fn long_hostile_commands_are_judged() {
    let rules = permissions(&["Bash"], &[], &["Bash(rm *)"]);
    let mut quoted = "ls \\# a=b\\ c".to_owned();
    for _ in 0..5 {
        let once = quoted.replace('\\', "\\\\").replace('"', "\\\"");
        quoted = format!("eval alias a=\"{once}\" b=\"{once}\" # x");
        quoted.truncate(30_000);
    }
    let repeated = ["a;", "eval 'a b' ", "ssh # ", "xargs a ", "1=2 ", "(a # ", "env a=b "];
    let repeated = repeated.map(|text| text.repeat(30_000 / text.len()));
    for command in [quoted].into_iter().chain(repeated) {
        assert_ne!(of_command(&rules, &command), ToolVerdict::Ask, "{}", command.len());
    }
}
